"""The trainer of runs that learn in an environment: rounds of playing and phases, members side by side.

It offers what the trainer of a log offers; `done` counts the decisions of rounds that are complete. Where the
environment is a function whole rounds run compiled, several in one call; on the host every rollout is played first, or
by a thread one round ahead (`hosts.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.contract import Collecting
from tidelog.algorithms.core.segments import Columns
from tidelog.training.engine.learner import (
    ChunkInputs,
    LearnerState,
    Stores,
    as_arrays,
    fetch_ahead,
    report,
    stack,
    without_tallies,
)
from tidelog.training.engine.log_streaming import Stream
from tidelog.training.engine.offload_storage import Storage
from tidelog.training.engine.offloaded_phases import OffloadedPhases
from tidelog.training.engine.plan import (
    PLAYED,
    RECORDING,
    ROWS,
    RoundInputs,
    RoundStep,
    draws,
    packed,
    run_rounds,
    run_rounds_together,
)
from tidelog.training.engine.schedule import RoundSchedule
from tidelog.training.engine.trainer import Member, Position, apart, reporting, state_of
from tidelog.training.online.collected_log import CollectedLog, flat_columns
from tidelog.training.online.collection import Named, shapes
from tidelog.training.online.env_assignment import EnvAssignment
from tidelog.training.online.host_rollouts import Coming, HostRollouts, on_threads
from tidelog.training.online.initial_learners import planned_updates
from tidelog.training.online.throughput import Throughput


class Rounds:
    """Moves all members through their rounds, `advance` by `advance`."""

    unit = "decisions"

    def __init__(
        self,
        members: list[Member],
        places: EnvAssignment,
        learners: list[LearnerState],
        steps: int,
        position: Position | None = None,
        together: bool | None = None,
        recorder: CollectedLog | None = None,
        stores: Stores | None = None,
        players: list[Any] | None = None,
        ahead: bool = False,
        waiting: Sequence[Any] = (),
        storage: Storage | None = None,
    ) -> None:
        """`players` play and learn where those are not the members' own algorithms; `stores` do not change.

        With `ahead` environments on the host are played by a thread, one round before they are learnt from; `waiting`
        is what was to act there, of each member, when a checkpoint was written.
        """
        self.members, self.position = members, position or Position()
        self.update = int(learners[0].update)
        self._steps, self._places, self._recorder = steps, places, recorder
        self.stores = stores or {}
        self._streams = {name: store for name, store in self.stores.items() if isinstance(store, Stream)}
        self._players: list[Any] = players or [member.algorithm for member in members]
        first: Collecting = self._players[0]
        self._phases, self._collection = first.phases(), first.collection()
        self._size = self._collection.environments * self._collection.steps
        self._timetable = RoundSchedule(first, self._size)
        self._updates = planned_updates(first, steps)
        self._depots = OffloadedPhases(storage or Storage(), self._players, learners[0].state, places.spec)
        together = jax.default_backend() != "cpu" if together is None else together
        here = places.source is not None and not self._streams and not self._depots
        self._together = together and len(members) > 1 and here
        numbers = [as_arrays(player) for player in self._players]
        self._algorithms = [stack(numbers)] if self._together else numbers
        self._learners = [stack(learners)] if self._together else list(learners)
        self._compiled = False
        self._blank = None if places.source else self._blank_rollout()
        self._watch = Throughput()
        begun = (self.position.phase, self.position.taken) != (0, 0)
        carried = [learner.played.carried for learner in learners]
        coming = Coming(self.position.round + begun, list(waiting), carried) if waiting else None
        self._ahead = ahead
        self._hosts = (
            None if places.source else HostRollouts(places, members, self._algorithms, learners, ahead, coming)
        )

    @property
    def done(self) -> int:
        """Decisions of complete rounds, of each member."""
        return self.position.round * self._size

    @property
    def learners(self) -> list[LearnerState]:
        """One learner a member; their buffers are taken over by the next `advance`."""
        return apart(self._learners, len(self.members))

    def state(self, index: int) -> Any:
        """The state of one member."""
        return state_of(self._learners, len(self.members), index)

    def needs_compiling(self) -> bool:
        """Whether nothing was compiled yet."""
        return not self._compiled

    def compile(self) -> None:
        """Compile the program, by a plan without rows."""
        self._run([], [self._blank] * len(self._learners))
        self._compiled = True

    def advance(self, most: int, until: int) -> int:
        """Take up to `most` updates, or so many that `until` more decisions are complete; returns how many.

        Raises EnvironmentFailure where an environment broke; nothing has moved then since the round began.
        """
        begun, before = time.monotonic(), self.done
        if self._hosts is not None:
            self._hosts.begin()
        rows, after, taken = self._next(most, until)
        rollouts = [self._blank] * len(self._learners)
        if rows[0].collect and self._hosts is not None:
            rollouts = self._watch.timed(PLAYED, 1, partial(self._play, self._hosts))
        names = tuple(phase.name for phase in self._phases)
        self._watch.count(rows, names)
        if self._watch.wants(rows, names):
            self._run_by_stages(rows, names, rollouts)
        else:
            self._run(rows, rollouts)
        if self._recorder is not None and rows[0].collect:
            self._record(self._recorder)
        self.update += taken
        self.position = after
        self._watch.took(time.monotonic() - begun, self.done - before)
        return taken

    def _run_by_stages(self, rows: list[RoundStep], names: tuple[str, ...], rollouts: list[Columns | None]) -> None:
        """The same, each stage by itself and timed; what the host played was timed before."""
        for row in rows:
            for name, part in row.stages(names):
                if name == PLAYED and self._places.source is None:
                    self._run([part], rollouts)
                else:
                    self._watch.timed(name, sum(part.updates) or 1, partial(self._run, [part], rollouts))

    def _next(self, most: int, until: int) -> tuple[list[RoundStep], Position, int]:
        """Rows from here on, where they lead, and how many updates they take."""
        alone = bool(self._depots) or bool(self._streams)
        one_by_one = self._places.source is None or self._recorder is not None or alone
        most = self._block - self.position.taken % self._block if self._streams else most
        return self._timetable.rows(self.position, most, until, 1 if one_by_one else ROWS)

    def _run(self, rows: list[RoundStep], rollouts: list[Columns | None]) -> None:
        """Rows on the device, then what of them is about segments that lie elsewhere."""
        if not rows or any(self._depots.is_here(row) for row in rows):
            self._run_on_device(rows, rollouts)
        for row in rows if self._depots else ():
            numbers = (jnp.int32(0), jnp.int32(self._updates), jnp.int32(0))
            work = [ChunkInputs(algorithm, self.stores, *numbers) for algorithm in self._algorithms]
            self._learners = self._depots.served(row, self.position.round, work, self._learners)

    def _run_on_device(self, rows: list[RoundStep], rollouts: list[Columns | None]) -> None:
        program = run_rounds_together if self._together else run_rounds
        plan = packed(rows, len(self._phases))

        def one(index: int) -> LearnerState:
            work = ChunkInputs(
                self._algorithms[index], self.stores, jnp.int32(0), jnp.int32(self._updates), jnp.int32(0)
            )
            work = self._with_fetched(work, self._learners[index]) if self._streams else work
            errand = RoundInputs(work, plan, self._places.source, rollouts[index])
            moved: LearnerState = jax.block_until_ready(program(errand, self._learners[index]))  # type: ignore[no-untyped-call]
            return moved

        self._learners = on_threads(one, len(self._learners), self._compiled)

    def _with_fetched(self, work: ChunkInputs, learner: LearnerState) -> ChunkInputs:
        """The same with what the updates of a block read of a log that stays on disk."""
        ready = fetch_ahead(0, work.algorithm, learner, self._streams, work.steps, self._block)
        kept = {name: store for name, store in self.stores.items() if name not in self._streams}
        return work._replace(stores=kept, ahead=ready, begin=jnp.array(learner.update))

    @cached_property
    def _block(self) -> int:
        """How many updates read a log on disk at once: of one round, and as many as may be fetched."""
        (phase,) = self._phases
        blocks = [self._streams[draw.store].block(draw) for draw in draws(phase) if draw.store in self._streams]
        rounds = -(-self._steps // self._size)
        return min([*blocks, max(1, *(self._timetable.asked(0, round) for round in range(rounds)))])

    def _play(self, hosts: HostRollouts) -> list[Columns | None]:
        """A rollout of every member for the round that begins; what it carries on stays with its learner."""
        last = (self.position.round + 1) * self._size >= self._steps
        found = hosts.rollouts(self.position.round, self._learners, last)
        for i, (_, carried) in enumerate(found):
            learner = self._learners[i]
            self._learners[i] = learner._replace(played=learner.played._replace(carried=carried))
        return [columns for columns, _ in found]

    def _blank_rollout(self) -> Columns:
        """Columns of the shapes and types that the host brings; never read."""
        algorithm, state = self._algorithms[0], self._learners[0].state
        recorded = self._recorder is not None
        found = shapes(algorithm, algorithm.policy_params(state), self._places.spec, self._collection, recorded)
        return {name: jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), found[name]) for name in found}

    def _record(self, recorder: CollectedLog) -> None:
        for i, learner in enumerate(self.learners):
            columns = flat_columns(jax.device_get(learner.segments[RECORDING].columns))
            begins = self._hosts.began[i] if self._hosts is not None else self.position.round == 0
            recorder.take(i, self.position.round, columns, begins)

    def environments(self) -> list[Named]:
        """What environments on the host are, as checkpoints hold it; of each {} where it has nothing to offer."""
        return [] if self._hosts is None else self._hosts.environments()

    def environments_before(self) -> list[Named]:
        """The same as it was before the rollout that failed."""
        return [] if self._hosts is None else self._hosts.environments_before()

    def waiting(self) -> list[Any]:
        """What acts in rollouts that are played ahead, of each member; nothing where none is."""
        return [] if self._hosts is None else self._hosts.waiting()

    def rest(self) -> None:
        """Wait for the thread that plays, if there is one; the run can go on afterwards."""
        if self._hosts is not None:
            self._hosts.rest()

    def deposited(self) -> list[dict[str, list[str]]]:
        """The pieces of segments that lie off the device, of each member, as checkpoints name them."""
        return self._depots.deposited()

    def put_back(self, deposited: Sequence[Mapping[str, list[str]]]) -> None:
        """Go on with the pieces that a checkpoint names; CheckpointError where one is not what it was."""
        self._depots.put_back(deposited)

    def keep_only(self, deposited: Sequence[Sequence[Mapping[str, list[str]]]]) -> None:
        """Forget the pieces that no checkpoint names."""
        self._depots.keep_only(deposited)

    def notes(self) -> list[str]:
        """What is rounded, which phases never come, and what cannot be resumed exactly."""
        rounds, algorithm = -(-self._steps // self._size), self._players[0]
        found = self._depots.notes()
        if rounds * self._size != self._steps:
            found.append(f"{self._steps:,} decisions are rounded up to {rounds} rollouts, {rounds * self._size:,}")
        for phase in self._phases:
            if phase.updates is not None and not any(phase.updates(algorithm, round) for round in range(rounds)):
                found.append(
                    f"the {phase.name} phase never comes in {rounds} rounds: ask for more steps, or a shorter round"
                )
        if self._ahead:
            found.append("played one round ahead: a rollout is by the policy as it stood one round before")
        if not all(host.resumable for host in self._places.hosts):
            name = self._places.hosts[0].environment.name
            found.append(f"{name} cannot be saved: a resumed run starts new episodes and differs from one that went on")
        return found

    def close(self) -> None:
        """Write the log where one was asked for; the run is at its end."""
        if self._recorder is not None:
            self._recorder.finish(self.position.round)

    def failures(self) -> list[tuple[Member, int]]:
        """Members with a metric that was not finite, and the update at which it first was so."""
        failed = [int(learner.failed) for learner in reporting(self._learners, len(self.members))]
        return [(member, at) for member, at in zip(self.members, failed, strict=True) if at >= 0]

    def report(self) -> list[dict[str, float]]:
        """Decisions, mean metrics and time of every member since the last call."""
        times = self._watch.report(len(self.members))
        light = reporting(self._learners, len(self.members))
        rows = [{"decisions": int(learner.played.decisions)} | report(learner) | times for learner in light]
        self._learners = [without_tallies(learner) for learner in self._learners]
        return rows

    def peek(self) -> dict[str, float]:
        """The first member's metrics so far, without starting a new window."""
        return report(reporting(self._learners, len(self.members))[0])

    def rate(self, updates: float) -> float:
        """Decisions a second, whatever the rate of updates."""
        return self._watch.rate()
