"""What comes next in a run of rounds: how far each phase goes, from any position on, however a run is cut."""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.core.contract import Phase
from tidelog.training.engine.plan import RoundStep
from tidelog.training.engine.trainer import Position


class RoundSchedule:
    """The rounds of one kind of player; `size` is how many decisions one collects."""

    def __init__(self, player: Any, size: int) -> None:
        self._player, self._size = player, size
        self._phases: tuple[Phase, ...] = player.phases()

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
