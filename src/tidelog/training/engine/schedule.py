"""What comes next in a run of rounds: how far each phase goes, from any position on, however a run is cut."""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.core.contract import Phase
from tidelog.errors import ConfigError
from tidelog.training.engine.members import Position
from tidelog.training.engine.plan import RoundStep

IDLE_ROUNDS = 1_000  # rounds without collection in which every phase may rest


class RoundSchedule:
    """The rounds of one kind of player; a round collects `size` decisions, none where a log is learnt from.

    A run over a log takes `steps` updates.
    """

    def __init__(self, player: Any, size: int, steps: int) -> None:
        self._player, self._size, self._steps = player, size, steps
        self._phases: tuple[Phase, ...] = player.phases()

    def next_phase(self, position: Position, update: int) -> tuple[Position, int]:
        """Over a log: the phase that comes next from a position on, and how many updates its visit has left.

        0 updates are left at the end of the run. ConfigError where no phase asks for any.
        """
        for _ in range(IDLE_ROUNDS * len(self._phases)):
            asked = self._phases[position.phase].updates
            left = self._steps - update if asked is None else asked(self._player, position.round) - position.taken
            if left > 0 or update >= self._steps:
                return position, min(left, self._steps - update)
            last = position.phase == len(self._phases) - 1
            position = Position(position.round + 1) if last else Position(position.round, position.phase + 1)
        raise ConfigError(f"every phase of this algorithm asks for 0 updates, {IDLE_ROUNDS} rounds on end")

    def rows(self, position: Position, most: int, until: int, limit: int) -> tuple[list[RoundStep], Position, int]:
        """At most `limit` rows from a position on, where they lead, and how many updates they take.

        They end with `most` updates, or with the round in which `until` decisions are complete.
        """
        rows: list[RoundStep] = []
        taken, begun = 0, position.round
        while len(rows) < limit and taken < most and (position.round - begun) * self._size < until:
            row, position, updates = self._row(position, most - taken)
            rows.append(row)
            taken += updates
        return rows, position, taken

    def _row(self, position: Position, most: int) -> tuple[RoundStep, Position, int]:
        """One round from a position on, cut after `most` updates."""
        count = len(self._phases)
        begin, updates, end = [False] * count, [0] * count, [False] * count
        collect, taken = position.phase == position.taken == 0, 0
        for i in range(position.phase, count):
            asked = self.asked(i, position.round)
            before = position.taken if i == position.phase else 0
            updates[i] = min(asked - before, most - taken)
            begin[i], end[i] = before == 0 < updates[i], 0 < asked == before + updates[i]
            taken += updates[i]
            if before + updates[i] < asked:
                at = Position(position.round, i, before + updates[i])
                return RoundStep(collect, tuple(begin), tuple(updates), tuple(end)), at, taken
        return RoundStep(collect, tuple(begin), tuple(updates), tuple(end)), Position(position.round + 1), taken

    def asked(self, phase: int, round: int) -> int:
        """How many updates a phase takes in a round."""
        asked = self._phases[phase].updates
        if asked is None:
            raise TypeError(f"phase '{self._phases[phase].name}' of a round has to say how many updates it takes")
        return asked(self._player, round)
