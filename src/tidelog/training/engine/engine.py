"""The one engine: members side by side, rounds of collection and phases, chunks of any length; no clocks or files.

Learning from a log is rounds without collection, and each phase is one program. In an environment whole rounds are one
program, several rounds in one call where the environment is a function; on the host every rollout is collected first,
or by a thread one round ahead (`host_rollouts.py`). Members differ in their seed or in their numbers and share one
compilation. On accelerators they run stacked under `vmap`; on CPU, where `vmap` gains nothing, each member runs its own
program on a pool of threads. Letters: `S` members.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.segments import Columns
from tidelog.training.engine.learner import (
    ChunkInputs,
    LearnerState,
    Stores,
    advance,
    advance_together,
    as_arrays,
    fetch_ahead,
    report,
    stack,
    without_tallies,
)
from tidelog.training.engine.log_streaming import Stream
from tidelog.training.engine.members import Member, Position, apart, fresh_learners, reporting, state_of
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
from tidelog.training.online.collected_log import CollectedLog, flat_columns
from tidelog.training.online.collection import Named, shapes
from tidelog.training.online.env_assignment import EnvAssignment
from tidelog.training.online.host_rollouts import Coming, HostRollouts, on_threads
from tidelog.training.online.initial_learners import planned_updates
from tidelog.training.online.throughput import Throughput


class Engine:
    """Moves all members through their rounds, `advance` by `advance`.

    `done` counts updates where a log is learnt from, and decisions of complete rounds in an environment.
    """

    def __init__(
        self,
        members: list[Member],
        learners: list[LearnerState],
        steps: int,
        *,
        stores: Stores | None = None,
        places: EnvAssignment | None = None,
        players: list[Any] | None = None,
        position: Position | None = None,
        together: bool | None = None,
        recorder: CollectedLog | None = None,
        ahead: bool = False,
        waiting: Sequence[Any] = (),
        storage: Storage | None = None,
    ) -> None:
        """`stores` do not change; with `places` rounds begin with collection.

        `players` collect and learn where those are not the members' own algorithms. With `ahead` host environments are
        played by a thread one round ahead; `waiting` is what was to act there, of each member, at a checkpoint.
        """
        self.members, self.position = members, position or Position()
        self.update = int(learners[0].update)
        self.stores: Stores = stores or {}
        self._places, self._recorder, self._steps = places, recorder, steps
        self._streams = {name: store for name, store in self.stores.items() if isinstance(store, Stream)}
        self._players: list[Any] = players or [member.algorithm for member in members]
        first = self._players[0]
        self._phases = first.phases()
        numbers = [as_arrays(player) for player in self._players]
        self._offloaded: OffloadedPhases | None = None
        self._size, self._updates = 0, steps
        if places is not None:
            collection = first.collection()
            self._size, self._updates = collection.environments * collection.steps, planned_updates(first, steps)
            self._offloaded = OffloadedPhases(storage or Storage(), self._players, learners[0].state, places.spec)
        self._schedule = RoundSchedule(first, self._size, steps)
        here = not self._streams and not self._offloaded and (places is None or places.source is not None)
        together = jax.default_backend() != "cpu" if together is None else together
        self._together = together and len(members) > 1 and here
        self._algorithms = [stack(numbers)] if self._together else numbers
        self._learners = [stack(learners)] if self._together else list(learners)
        self._compiled: set[int] = set()  # phases of a log; whole rounds are -1
        self._throughput = Throughput()
        self._ahead, self._hosts, self._blank = ahead, None, None
        if places is not None and not places.source:
            self._blank = self._blank_rollout(places)
            begun = (self.position.phase, self.position.taken) != (0, 0)
            carried = [learner.played.carried for learner in learners]
            coming = Coming(self.position.round + begun, list(waiting), carried) if waiting else None
            self._hosts = HostRollouts(places, members, self._algorithms, learners, ahead, coming)

    @classmethod
    def fresh(
        cls, members: list[Member], spec: Any, stores: Stores, steps: int, together: bool | None = None
    ) -> Engine:
        """An engine that learns from a log, at update 0."""
        return cls(members, fresh_learners(members, spec, stores, steps), steps, stores=stores, together=together)

    @property
    def unit(self) -> str:
        """What `done` counts: "updates" or "decisions"."""
        return "updates" if self._places is None else "decisions"

    @property
    def done(self) -> int:
        """How far each member is, in that unit."""
        return self.update if self._places is None else self.position.round * self._size

    @property
    def learners(self) -> list[LearnerState]:
        """One learner a member; the next `advance` takes their buffers over."""
        return apart(self._learners, len(self.members))

    def state(self, index: int) -> Any:
        """The state of one member."""
        return state_of(self._learners, len(self.members), index)

    def put(self, index: int, state: Any) -> None:
        """Give a member another state, in which only what acting reads was changed."""
        learners = self.learners
        changed = [*learners[:index], learners[index]._replace(state=state), *learners[index + 1 :]]
        self._learners = [stack(changed)] if self._together else changed

    # Chunks.

    def needs_compiling(self) -> bool:
        """Whether the program of the next chunk was not compiled by this engine yet."""
        return self._program() not in self._compiled

    def compile(self) -> None:
        """Compile the program of the next chunk, by a chunk that does nothing."""
        if self._places is None:
            self._run_phase(self._program(), 0)
        else:
            self._run([], [self._blank] * len(self._learners))
        self._compiled.add(self._program())

    def _program(self) -> int:
        """The phase of a log that comes next; -1: whole rounds."""
        return self._schedule.next_phase(self.position, self.update)[0].phase if self._places is None else -1

    def advance(self, most: int, until: int | None = None) -> int:
        """Take up to `most` updates, and no more than until `done` is larger by `until`; return how many were taken.

        Where a log stays on disk a whole block is taken, whatever `most` says: no clock decides where blocks begin.
        Raises EnvironmentFailure where an environment broke; nothing has moved then since the round began.
        """
        return self._advance_log(most, until) if self._places is None else self._advance_rounds(most, until)

    def _advance_log(self, most: int, until: int | None) -> int:
        """A part of one phase."""
        self.position, left = self._schedule.next_phase(self.position, self.update)
        phase = self.position.phase
        count = min(self._log_block(phase) if self._streams else most, left, left if until is None else until)
        self._run_phase(phase, count)
        self._compiled.add(phase)
        self.update += count
        self.position = self.position._replace(taken=self.position.taken + count)
        return count

    def _advance_rounds(self, most: int, until: int | None) -> int:
        """Whole rounds, or a part of one."""
        begun, before = time.monotonic(), self.done
        if self._hosts is not None:
            self._hosts.begin()
        rows, after, taken = self._next(most, self._steps if until is None else until)
        rollouts = [self._blank] * len(self._learners)
        if rows[0].collect and self._hosts is not None:
            rollouts = self._throughput.timed(PLAYED, 1, partial(self._play, self._hosts))
        names = tuple(phase.name for phase in self._phases)
        self._throughput.count(rows, names)
        if self._throughput.wants(rows, names):
            self._run_by_stages(rows, names, rollouts)
        else:
            self._run(rows, rollouts)
        if self._recorder is not None and rows[0].collect:
            self._record(self._recorder)
        self.update += taken
        self.position = after
        self._throughput.took(time.monotonic() - begun, self.done - before)
        return taken

    # Programs.

    def _run_phase(self, phase: int, count: int) -> None:
        """Updates of one phase over a log, in every member."""
        program = advance_together(phase) if self._together else advance(phase)

        def one(index: int) -> LearnerState:
            work = self._log_inputs(phase, index, count)
            moved: LearnerState = jax.block_until_ready(program(work, self._learners[index]))  # type: ignore[no-untyped-call]
            return moved

        # one after another at first: a second thread would compile the same program again
        self._learners = on_threads(one, len(self._learners), phase in self._compiled)

    def _log_inputs(self, phase: int, index: int, count: int) -> ChunkInputs:
        numbers = (jnp.int32(count), jnp.int32(self._updates), jnp.int32(self.update))
        if not self._streams:
            return ChunkInputs(self._algorithms[index], self.stores, *numbers)
        algorithm, learner = self._algorithms[index], self._learners[index]
        ready = fetch_ahead(phase, algorithm, learner, self.stores, numbers[1], self._log_block(phase))
        return ChunkInputs(algorithm, {}, *numbers, ready, jnp.array(learner.update))

    def _log_block(self, phase: int) -> int:
        """How many updates are fetched at once where the log stays on disk."""
        streams = [(self.stores[draw.store], draw) for draw in draws(self._phases[phase])]
        return min(store.block(draw) for store, draw in streams if isinstance(store, Stream))

    def _run_by_stages(self, rows: list[RoundStep], names: tuple[str, ...], rollouts: list[Columns | None]) -> None:
        """The same, each stage by itself and timed; what the host played was timed before."""
        for row in rows:
            for name, part in row.stages(names):
                if name == PLAYED and self._hosts is not None:
                    self._run([part], rollouts)
                else:
                    self._throughput.timed(name, sum(part.updates) or 1, partial(self._run, [part], rollouts))

    def _next(self, most: int, until: int) -> tuple[list[RoundStep], Position, int]:
        """Rows from here on, where they lead, and how many updates they take."""
        alone = bool(self._offloaded) or bool(self._streams)
        one_by_one = self._hosts is not None or self._recorder is not None or alone
        most = self._block - self.position.taken % self._block if self._streams else most
        return self._schedule.rows(self.position, most, until, 1 if one_by_one else ROWS)

    def _run(self, rows: list[RoundStep], rollouts: list[Columns | None]) -> None:
        """Rows on the device, then what of them is about segments that lie elsewhere."""
        away = self._offloaded or None
        if not rows or away is None or any(away.is_here(row) for row in rows):
            self._run_on_device(rows, rollouts)
        if away is not None:
            for row in rows:
                numbers = (jnp.int32(0), jnp.int32(self._updates), jnp.int32(0))
                work = [ChunkInputs(algorithm, self.stores, *numbers) for algorithm in self._algorithms]
                self._learners = away.served(row, self.position.round, work, self._learners)

    def _run_on_device(self, rows: list[RoundStep], rollouts: list[Columns | None]) -> None:
        program = run_rounds_together if self._together else run_rounds
        plan = packed(rows, len(self._phases))
        source = None if self._places is None else self._places.source

        def one(index: int) -> LearnerState:
            work = ChunkInputs(
                self._algorithms[index], self.stores, jnp.int32(0), jnp.int32(self._updates), jnp.int32(0)
            )
            work = self._with_fetched(work, self._learners[index]) if self._streams else work
            errand = RoundInputs(work, plan, source, rollouts[index])
            moved: LearnerState = jax.block_until_ready(program(errand, self._learners[index]))  # type: ignore[no-untyped-call]
            return moved

        self._learners = on_threads(one, len(self._learners), bool(self._compiled))

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
        return min([*blocks, max(1, *(self._schedule.asked(0, round) for round in range(rounds)))])

    def _play(self, hosts: HostRollouts) -> list[Columns | None]:
        """A rollout of every member for the round that begins; what it carries on stays with its learner."""
        last = (self.position.round + 1) * self._size >= self._steps
        found = hosts.rollouts(self.position.round, self._learners, last)
        for i, (_, carried) in enumerate(found):
            learner = self._learners[i]
            self._learners[i] = learner._replace(played=learner.played._replace(carried=carried))
        return [columns for columns, _ in found]

    def _blank_rollout(self, places: EnvAssignment) -> Columns:
        """Columns of the shapes and types that the host brings; never read."""
        algorithm, state = self._algorithms[0], self._learners[0].state
        recorded = self._recorder is not None
        found = shapes(algorithm, algorithm.policy_params(state), places.spec, algorithm.collection(), recorded)
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
        return [] if self._offloaded is None else self._offloaded.deposited()

    def put_back(self, deposited: Sequence[Mapping[str, list[str]]]) -> None:
        """Go on with the pieces that a checkpoint names; CheckpointError where one is not what it was."""
        if self._offloaded is not None:
            self._offloaded.put_back(deposited)

    def keep_only(self, deposited: Sequence[Sequence[Mapping[str, list[str]]]]) -> None:
        """Forget the pieces that no checkpoint names."""
        if self._offloaded is not None:
            self._offloaded.keep_only(deposited)

    def notes(self) -> list[str]:
        """What is rounded, which phases never come, and what cannot be resumed exactly."""
        if self._places is None:
            return []
        rounds, algorithm = -(-self._steps // self._size), self._players[0]
        found = [] if self._offloaded is None else self._offloaded.notes()
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
        """Mean metrics of every member since the last call; in an environment decisions and times too."""
        rows = [report(learner) for learner in reporting(self._learners, len(self.members))]
        if self._places is not None:
            times = self._throughput.report(len(self.members))
            light = reporting(self._learners, len(self.members))
            rows = [
                {"decisions": int(one.played.decisions)} | row | times for one, row in zip(light, rows, strict=True)
            ]
        self._learners = [without_tallies(learner) for learner in self._learners]
        return rows

    def peek(self) -> dict[str, float]:
        """The first member's metrics so far, without starting a new window."""
        return report(reporting(self._learners, len(self.members))[0])

    def rate(self, updates: float) -> float:
        """How much of `done` a second: updates, or decisions whatever the rate of updates."""
        return updates if self._places is None else self._throughput.rate()
