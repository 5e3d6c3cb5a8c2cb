"""The schedule of rounds: the number of updates of each phase from any position, however a run is cut into chunks."""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.core.contract import Phase
from tidelog.errors import ConfigError
from tidelog.training.engine.members import Position
from tidelog.training.engine.plan import RoundStep

IDLE_ROUNDS = 1_000  # limit of consecutive rounds, without collection, in which no phase has updates


class RoundSchedule:
    """The rounds of one algorithm; a round collects `size` decisions, 0 if the algorithm learns from a log.

    A run over a log takes `steps` updates.
    """

    def __init__(self, algorithm: Any, size: int, steps: int) -> None:
        self._algorithm, self._size, self._steps = algorithm, size, steps
        self._phases: tuple[Phase, ...] = algorithm.phases()

    def next_phase(self, position: Position, update: int) -> tuple[Position, int]:
        """Return the next phase over a log, from a position, and the number of updates that it has left.

        0 updates are left at the end of the run. ConfigError if no phase requires any updates.
        """
        for _ in range(IDLE_ROUNDS * len(self._phases)):
            planned = self._planned(position.phase, position.round)
            left = self._steps - update if planned is None else planned - position.updates
            if left > 0 or update >= self._steps:
                return position, min(left, self._steps - update)
            last = position.phase == len(self._phases) - 1
            position = Position(position.round + 1) if last else Position(position.round, position.phase + 1)
        raise ConfigError(
            f"every phase of this algorithm has 0 updates in {IDLE_ROUNDS} consecutive rounds, expected at least 1. "
            "fix: return more updates from Phase.updates"
        )

    def _planned(self, phase: int, round: int) -> int | None:
        """Return the updates of a phase in a round over a log; None for all that the run has left."""
        share, asked = self._phases[phase].share, self._phases[phase].updates
        if share is not None:
            return 0 if round else updates_of_share(share(self._algorithm), self._steps)
        return None if asked is None else asked(self._algorithm, round)

    def rows(self, position: Position, most: int, until: int, limit: int) -> tuple[list[RoundStep], Position, int]:
        """Return at most `limit` round steps from a position, the position after them, and their number of updates.

        They end after `most` updates, or after the round in which `until` decisions are complete.
        """
        steps: list[RoundStep] = []
        taken, first_round = 0, position.round
        while len(steps) < limit and taken < most and (position.round - first_round) * self._size < until:
            step, position, updates = self._round_step(position, most - taken)
            steps.append(step)
            taken += updates
        return steps, position, taken

    def _round_step(self, position: Position, most: int) -> tuple[RoundStep, Position, int]:
        """Return one round from a position, cut after `most` updates."""
        count = len(self._phases)
        begin, updates, end = [False] * count, [0] * count, [False] * count
        collect, taken = position.phase == position.updates == 0, 0
        for i in range(position.phase, count):
            asked = self.asked(i, position.round)
            before = position.updates if i == position.phase else 0
            updates[i] = min(asked - before, most - taken)
            begin[i], end[i] = before == 0 < updates[i], 0 < asked == before + updates[i]
            taken += updates[i]
            if before + updates[i] < asked:
                at = Position(position.round, i, before + updates[i])
                return RoundStep(collect, tuple(begin), tuple(updates), tuple(end)), at, taken
        return RoundStep(collect, tuple(begin), tuple(updates), tuple(end)), Position(position.round + 1), taken

    def asked(self, phase: int, round: int) -> int:
        """Return the number of updates of a phase in a round."""
        asked = self._phases[phase].updates
        if asked is None:
            raise TypeError(
                f"phase '{self._phases[phase].name}' has updates=None, expected a function of the round. fix: set "
                "Phase.updates; None and Phase.share are only for algorithms that learn from a log"
            )
        return asked(self._algorithm, round)


def updates_of_share(share: float, steps: int) -> int:
    """Return this share of a run's updates, rounded; a share below 1 leaves at least one update."""
    if not 0.0 <= share <= 1.0:
        raise ConfigError(f"Phase.share is {share}: expected a share of the run's updates in [0, 1]. fix: use 0.1")
    return steps if share == 1.0 else min(round(share * steps), steps - 1)
