"""The one loop, without clocks, files or names: members side by side, phases in turn, chunks of any length.

Members differ in their seed or in their numbers and share one compilation. On accelerators they run stacked under
`vmap`; on CPU, where `vmap` gains nothing, each runs its own program on a pool of threads. Letters: `S` members.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.errors import ConfigError
from tidelog.training.engine.learner import (
    ChunkInputs,
    LearnerState,
    Stores,
    advance,
    advance_together,
    as_arrays,
    create_learner,
    fetch_ahead,
    metric_names,
    report,
    stack,
    unstack,
    without_tallies,
)
from tidelog.training.engine.log_streaming import Stream

IDLE_ROUNDS = 1_000  # rounds in which every phase may rest


@dataclass(frozen=True)
class Member:
    """One run among those that train side by side."""

    index: int
    algorithm: Any
    seed: int


class Position(NamedTuple):
    """Where a run stands in its rounds: the visit of `phase` in `round` has taken `taken` updates."""

    round: int = 0
    phase: int = 0
    taken: int = 0


class Trainer:
    """Moves all members through their phases, `advance` by `advance`."""

    unit = "updates"

    def __init__(
        self,
        members: list[Member],
        stores: Stores,
        learners: list[LearnerState],
        steps: int,
        position: Position | None = None,
        together: bool | None = None,
    ) -> None:
        self.members, self.steps, self.position = members, steps, position or Position()
        self.update = int(learners[0].update)
        self._stores = stores
        self._streamed = any(isinstance(store, Stream) for store in stores.values())
        self._together = jax.default_backend() != "cpu" if together is None else together
        self._together = self._together and len(members) > 1 and not self._streamed
        numbers = [as_arrays(member.algorithm) for member in members]
        self._algorithms = [stack(numbers)] if self._together else numbers
        self._learners = [stack(learners)] if self._together else list(learners)
        self._phases = members[0].algorithm.phases()
        self._compiled: set[int] = set()

    @classmethod
    def fresh(
        cls, members: list[Member], spec: Any, stores: Stores, steps: int, together: bool | None = None
    ) -> Trainer:
        """A trainer at update 0."""
        return cls(members, stores, fresh_learners(members, spec, stores, steps), steps, together=together)

    @property
    def done(self) -> int:
        """How far the run is: updates of each member."""
        return self.update

    @property
    def stores(self) -> Stores:
        """What training reads and does not change."""
        return self._stores

    @property
    def learners(self) -> list[LearnerState]:
        """One learner a member; their buffers are taken over by the next `advance`."""
        return apart(self._learners, len(self.members))

    def state(self, index: int) -> Any:
        """The state of one member."""
        return state_of(self._learners, len(self.members), index)

    def visit(self) -> tuple[int, int]:
        """The phase that is to run now, and how many updates its visit has left; 0 at the end of the run."""
        position = self.position
        for _ in range(IDLE_ROUNDS * len(self._phases)):
            left = self._updates(position) - position.taken
            if left > 0 or self.update >= self.steps:
                self.position = position
                return position.phase, min(left, self.steps - self.update)
            position = self._following(position)
        raise ConfigError(f"every phase of this algorithm asks for 0 updates, {IDLE_ROUNDS} rounds on end")

    def _updates(self, position: Position) -> int:
        asked = self._phases[position.phase].updates
        if asked is None:
            return self.steps - self.update + position.taken
        wanted: int = asked(self.members[0].algorithm, position.round)
        return wanted

    def _following(self, position: Position) -> Position:
        last = position.phase == len(self._phases) - 1
        return Position(position.round + 1) if last else Position(position.round, position.phase + 1)

    def needs_compiling(self) -> bool:
        """Whether the phase that is to run now has not been compiled by this trainer."""
        return self.visit()[0] not in self._compiled

    def compile(self) -> None:
        """Compile the phase that is to run now, by a chunk of no updates."""
        self._run(self.visit()[0], 0)

    def advance(self, most: int, until: int | None = None) -> int:
        """Take up to `most` updates of the phase that is to run now, and never more than `until`; returns how many.

        Where the log stays on disk a block is taken instead, whatever `most` says, so that blocks begin at updates that
        no clock decides.
        """
        phase, left = self.visit()
        count = min(self._block(phase) if self._streamed else most, left, left if until is None else until)
        self._run(phase, count)
        self.update += count
        self.position = self.position._replace(taken=self.position.taken + count)
        return count

    def _run(self, phase: int, count: int) -> None:
        program = advance_together(phase) if self._together else advance(phase)

        def one(index: int) -> LearnerState:
            work = self._work(phase, index, count)
            moved: LearnerState = jax.block_until_ready(program(work, self._learners[index]))  # type: ignore[no-untyped-call]
            return moved

        if phase not in self._compiled:  # one after another: a second thread would compile the same program again
            self._compiled.add(phase)
            self._learners = [one(i) for i in range(len(self._learners))]
        elif len(self._learners) == 1:
            self._learners = [one(0)]
        else:
            with ThreadPoolExecutor(min(len(self._learners), os.cpu_count() or 1)) as pool:
                self._learners = list(pool.map(one, range(len(self._learners))))

    def _work(self, phase: int, index: int, count: int) -> ChunkInputs:
        numbers = (jnp.int32(count), jnp.int32(self.steps), jnp.int32(self.update))
        if not self._streamed:
            return ChunkInputs(self._algorithms[index], self._stores, *numbers)
        algorithm, learner = self._algorithms[index], self._learners[index]
        ready = fetch_ahead(phase, algorithm, learner, self._stores, numbers[1], self._block(phase))
        return ChunkInputs(algorithm, {}, *numbers, ready, jnp.array(learner.update))

    def _block(self, phase: int) -> int:
        """How many updates are fetched at once where the log stays on disk."""
        reads = self._phases[phase].reads
        draws = reads.values() if isinstance(reads, dict) else (reads,)
        streams = [(self._stores[draw.store], draw) for draw in draws]
        return min(store.block(draw) for store, draw in streams if isinstance(store, Stream))

    def rate(self, updates: float) -> float:
        """Of what `done` counts, how much a second."""
        return updates

    def environments(self) -> list[dict[str, Any]]:
        """Nothing is played."""
        return []

    environments_before = environments
    waiting = environments

    def rest(self) -> None:
        """No thread plays."""

    def deposited(self) -> list[dict[str, list[str]]]:
        """Nothing lies elsewhere."""
        return []

    def keep_only(self, deposited: Any) -> None:
        """Nothing is to be forgotten."""

    def notes(self) -> list[str]:
        """Nothing that the user did not ask for."""
        return []

    def close(self) -> None:
        """Nothing to finish."""

    def failures(self) -> list[tuple[Member, int]]:
        """Members with a metric that was not finite, and the update at which it first was so."""
        failed = [int(learner.failed) for learner in reporting(self._learners, len(self.members))]
        return [(member, at) for member, at in zip(self.members, failed, strict=True) if at >= 0]

    def report(self) -> list[dict[str, float]]:
        """Mean metrics of every member since the last call."""
        rows = [report(learner) for learner in reporting(self._learners, len(self.members))]
        self._learners = [without_tallies(learner) for learner in self._learners]
        return rows

    def put(self, index: int, state: Any) -> None:
        """Give a member another state: one in which only what acting reads was changed."""
        learners = self.learners
        moved = learners[index]._replace(state=state)
        changed = [*learners[:index], moved, *learners[index + 1 :]]
        self._learners = [stack(changed)] if self._together else changed

    def peek(self) -> dict[str, float]:
        """The first member's metrics so far, without starting a new window."""
        return report(reporting(self._learners, len(self.members))[0])


def apart(learners: list[LearnerState], members: int) -> list[LearnerState]:
    """One learner a member, of learners that may be stacked."""
    return learners if len(learners) == members else [unstack(learners[0], i) for i in range(members)]


def state_of(learners: list[LearnerState], members: int, index: int) -> Any:
    """The state of one member, of learners that may be stacked."""
    return learners[index].state if len(learners) == members else unstack(learners[0].state, index)


def reporting(learners: list[LearnerState], members: int) -> list[LearnerState]:
    """The same with what reports read alone, so that of stacked ones little is copied."""
    if len(learners) == members:
        return learners
    (whole,) = learners
    played = None if whole.played is None else whole.played._replace(worlds=None, carried=None)
    return apart([whole._replace(state=None, orders={}, segments={}, played=played)], members)


def fresh_learners(members: list[Member], spec: Any, stores: Stores, steps: int) -> list[LearnerState]:
    """Learners at update 0; each depends on nothing but its own seed and settings."""
    states = [member.algorithm.init(spec, jax.random.key(member.seed), steps) for member in members]
    metrics = metric_names(as_arrays(members[0].algorithm), states[0], stores)
    return [
        create_learner(member.algorithm, state, stores, member.seed, metrics)
        for member, state in zip(members, states, strict=True)
    ]
