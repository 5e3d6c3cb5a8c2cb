"""The training engine: members side by side, rounds of collection and phases, chunks of any length; no clocks or files.

Over a log, rounds have no collection, and each phase is one program. In an environment, whole rounds are one program:
a functional environment runs several rounds in one call; in a host environment each rollout is collected first, or by a
thread one round ahead (`host_rollouts.py`). Members differ in their seed or in their numbers and share one compilation.
On accelerators they run stacked under `vmap`; on CPU, where `vmap` gains nothing, each member runs its own program on a
pool of threads. Letters: `S` members.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.segments import Columns
from tidelog.errors import ConfigError
from tidelog.networks.arrays import scalar
from tidelog.training.engine.learner import (
    ChunkInputs,
    LearnerState,
    Stores,
    advance,
    advance_together,
    as_arrays,
    prefetch,
    report,
    without_tallies,
)
from tidelog.training.engine.log_streaming import Stream
from tidelog.training.engine.members import Member, Position, fresh_learners
from tidelog.training.engine.placement import Placement, check_shares, put
from tidelog.training.engine.plan import (
    COLLECT,
    MAX_ROUND_STEPS,
    RECORDED_STORE,
    RoundInputs,
    RoundStep,
    pack,
    run_rounds,
    run_rounds_together,
    samplers_of,
)
from tidelog.training.engine.schedule import RoundSchedule
from tidelog.training.online.collected_log import CollectedLog, flat_columns
from tidelog.training.online.collection import Named, shapes
from tidelog.training.online.env_assignment import EnvAssignment, with_new_episodes
from tidelog.training.online.host_rollouts import HostRollouts, PendingRollout, on_threads
from tidelog.training.online.initial_learners import planned_updates
from tidelog.training.online.throughput import Throughput


class Engine:
    """Train all members through their rounds, one chunk per `advance`.

    `done` counts updates over a log, and decisions of complete rounds in an environment.
    """

    def __init__(
        self,
        members: list[Member],
        learners: list[LearnerState],
        steps: int,
        *,
        stores: Stores | None = None,
        assignment: EnvAssignment | None = None,
        collectors: list[Any] | None = None,
        position: Position | None = None,
        together: bool | None = None,
        collected_log: CollectedLog | None = None,
        ahead: bool = False,
        pending_params: Sequence[Any] = (),
        devices: int | Mapping[str, int] | None = None,
    ) -> None:
        """`stores` do not change; with an environment `assignment`, rounds begin with collection.

        `collectors` are the algorithms that collect and learn, if they are not the members' own. With `ahead` a thread
        collects in host environments one round ahead; `pending_params` holds each member's policy params of that
        rollout, from a checkpoint. With `devices` members are spread over that many, or, with {"members": M,
        "batch": N}, over M groups of N devices that share each batch. ConfigError where there are fewer, or where a
        batch cannot be shared equally, and for a host environment or a log on disk.
        """
        self.members, self.position = members, position or Position()
        self.update = int(learners[0].update)
        self.stores: Stores = stores or {}
        self._assignment, self._collected_log, self._steps = assignment, collected_log, steps
        self._streams = {name: store for name, store in self.stores.items() if isinstance(store, Stream)}
        self._collectors: list[Any] = collectors or [member.algorithm for member in members]
        first = self._collectors[0]
        self._phases = first.phases()
        numbers = [as_arrays(player) for player in self._collectors]
        self._size, self._updates = 0, steps
        if assignment is not None:
            collection = first.collection()
            self._size, self._updates = collection.environments * collection.steps, planned_updates(first, steps)
        self._schedule = RoundSchedule(first, self._size, steps)
        here = not self._streams and (assignment is None or assignment.source is not None)
        together = jax.default_backend() != "cpu" if together is None else together
        if devices is not None and not here:
            raise ConfigError(
                f"devices = {devices}: members are spread where all of their data is on the device: a log in memory, "
                "or a functional environment (jax:NAME). fix: leave devices out"
            )
        if isinstance(devices, Mapping):
            check_shares(self._phases, devices["batch"])
        self._together = together and len(members) > 1 and here
        self._placement = Placement.of(len(members), self._together, devices)
        self._algorithms = self._placement.grouped(numbers)
        self._learners = self._placement.grouped(learners)
        self._stores = self._placement.copies(self.stores)
        self._compiled: set[int] = set()  # compiled phases over a log; -1 for whole rounds
        self._throughput = Throughput()
        self._ahead, self._hosts, self._blank = ahead, None, None
        if assignment is not None and not assignment.source:
            self._blank = self._blank_rollout(assignment)
            begun = (self.position.phase, self.position.updates) != (0, 0)
            carried = [learner.collection_state.carried for learner in learners]
            coming = (
                PendingRollout(self.position.round + begun, list(pending_params), carried) if pending_params else None
            )
            self._hosts = HostRollouts(assignment, members, self._algorithms, learners, ahead, coming)

    @classmethod
    def fresh(
        cls, members: list[Member], spec: Any, stores: Stores, steps: int, together: bool | None = None
    ) -> Engine:
        """Create an engine that learns from a log, at update 0."""
        return cls(members, fresh_learners(members, spec, stores, steps), steps, stores=stores, together=together)

    @property
    def unit(self) -> str:
        """The unit of `done`: "updates" or "decisions"."""
        return "updates" if self._assignment is None else "decisions"

    @property
    def done(self) -> int:
        """The progress of each member, in that unit."""
        return self.update if self._assignment is None else self.position.round * self._size

    @property
    def learners(self) -> list[LearnerState]:
        """One learner per member; the next `advance` donates their buffers."""
        return self._placement.apart(self._learners)

    def state(self, index: int) -> Any:
        """Return the state of one member."""
        return self._placement.state(self._learners, index)

    def replace_state(self, index: int, state: Any) -> None:
        """Replace the state of a member; only the part that acting reads may differ."""
        learners = self.learners
        changed = [*learners[:index], learners[index]._replace(state=state), *learners[index + 1 :]]
        self._learners = self._placement.grouped(changed)

    # Chunks.

    def needs_compiling(self) -> bool:
        """Return whether this engine has not yet compiled the program of the next chunk."""
        return self._program() not in self._compiled

    def compile(self) -> None:
        """Compile the program of the next chunk, with a chunk of 0 updates."""
        if self._assignment is None:
            self._run_phase(self._program(), 0)
        else:
            self._run([], [self._blank] * len(self._learners))
        self._compiled.add(self._program())

    def _program(self) -> int:
        """Return the next phase over a log, or -1 for whole rounds."""
        return self._schedule.next_phase(self.position, self.update)[0].phase if self._assignment is None else -1

    def advance(self, most: int, until: int | None = None) -> int:
        """Take up to `most` updates, but stop when `done` has grown by `until`; return the number of updates.

        If a log stays on disk, a whole block is taken regardless of `most`: the start of a block does not depend on the
        clock. Raises EnvironmentFailure if an environment fails; the state is then that of the start of the round.
        """
        return self._advance_log(most, until) if self._assignment is None else self._advance_rounds(most, until)

    def _advance_log(self, most: int, until: int | None) -> int:
        """Run a part of one phase over a log."""
        self.position, left = self._schedule.next_phase(self.position, self.update)
        phase = self.position.phase
        count = min(self._log_block(phase) if self._streams else most, left, left if until is None else until)
        self._run_phase(phase, count)
        self._compiled.add(phase)
        self.update += count
        self.position = self.position._replace(updates=self.position.updates + count)
        return count

    def _advance_rounds(self, most: int, until: int | None) -> int:
        """Run whole rounds, or a part of one."""
        start, before = time.monotonic(), self.done
        if self._hosts is not None:
            self._hosts.begin()
        steps, after, taken = self._next(most, self._steps if until is None else until)
        rollouts = [self._blank] * len(self._learners)
        if steps[0].collect and self._hosts is not None:
            rollouts = self._throughput.time_stage(COLLECT, 1, partial(self._collect, self._hosts))
        names = tuple(phase.name for phase in self._phases)
        self._throughput.count(steps, names)
        if self._throughput.needs_timing(steps, names):
            self._run_by_stages(steps, names, rollouts)
        else:
            self._run(steps, rollouts)
        if self._collected_log is not None and steps[0].collect:
            self._record(self._collected_log)
        self.update += taken
        self.position = after
        self._throughput.add_chunk(time.monotonic() - start, self.done - before)
        return taken

    # Programs.

    def _run_phase(self, phase: int, count: int) -> None:
        """Run updates of one phase over a log, in every member."""
        programs = [advance_together(phase) if many > 1 else advance(phase) for many in self._placement.sizes]

        def one(index: int) -> LearnerState:
            return programs[index](self._log_inputs(phase, index, count), self._learners[index])

        # the first time one member after another: a second thread would compile the same program again
        self._learners = self._in_each_group(one, phase in self._compiled)

    def _in_each_group(self, program: Callable[[int], LearnerState], at_once: bool) -> list[LearnerState]:
        """Return the learners of all groups after a program; `at_once` runs them on a pool of threads.

        Programs of several devices are started in one order: each of them waits for the others' parts of its own.
        """
        if any(self._placement.meshes):
            started = [program(index) for index in range(len(self._learners))]
            return list(jax.block_until_ready(started))  # type: ignore[no-untyped-call]

        def one(index: int) -> LearnerState:
            moved: LearnerState = jax.block_until_ready(program(index))  # type: ignore[no-untyped-call]
            return moved

        return on_threads(one, len(self._learners), at_once)

    def _log_inputs(self, phase: int, index: int, count: int) -> ChunkInputs:
        numbers = (scalar(count), scalar(self._updates), scalar(self.update))
        if not self._streams:
            mesh, place = self._placement.meshes[index], self._placement.places[index]
            numbers = numbers if mesh is None else put(numbers, place)
            return ChunkInputs(self._algorithms[index], self._stores[index], *numbers)._replace(mesh=mesh)
        algorithm, learner = self._algorithms[index], self._learners[index]
        ready = prefetch(phase, algorithm, learner, self.stores, numbers[1], self._log_block(phase))
        return ChunkInputs(algorithm, {}, *numbers, ready, jnp.array(learner.update))

    def _log_block(self, phase: int) -> int:
        """Return the number of updates in one block of a log on disk."""
        streams = [(self.stores[draw.store], draw) for draw in samplers_of(self._phases[phase])]
        return min(store.block(draw) for store, draw in streams if isinstance(store, Stream))

    def _run_by_stages(self, steps: list[RoundStep], names: tuple[str, ...], rollouts: list[Columns | None]) -> None:
        """Run round steps stage by stage and time each stage; host rollouts have been timed before."""
        for step in steps:
            for name, part in step.stages(names):
                if name == COLLECT and self._hosts is not None:
                    self._run([part], rollouts)
                else:
                    self._throughput.time_stage(name, sum(part.updates) or 1, partial(self._run, [part], rollouts))

    def _next(self, most: int, until: int) -> tuple[list[RoundStep], Position, int]:
        """Return the next round steps, the position after them, and their number of updates."""
        one_by_one = self._hosts is not None or self._collected_log is not None or bool(self._streams)
        most = self._block - self.position.updates % self._block if self._streams else most
        return self._schedule.rows(self.position, most, until, 1 if one_by_one else MAX_ROUND_STEPS)

    def _run(self, steps: list[RoundStep], rollouts: list[Columns | None]) -> None:
        """Run round steps."""
        programs = [run_rounds_together if many > 1 else run_rounds for many in self._placement.sizes]
        plan = pack(steps, len(self._phases))
        source = None if self._assignment is None else self._assignment.source

        def one(index: int) -> LearnerState:
            numbers = (scalar(0), scalar(self._updates), scalar(0))
            mesh = self._placement.meshes[index]
            numbers = numbers if mesh is None else put(numbers, self._placement.places[index])
            chunk = ChunkInputs(self._algorithms[index], self._stores[index], *numbers)._replace(mesh=mesh)
            chunk = self._with_fetched(chunk, self._learners[index]) if self._streams else chunk
            return programs[index](RoundInputs(chunk, plan, source, rollouts[index]), self._learners[index])

        self._learners = self._in_each_group(one, bool(self._compiled))

    def _with_fetched(self, inputs: ChunkInputs, learner: LearnerState) -> ChunkInputs:
        """Add the samples of the next block from a log on disk to the inputs of a chunk."""
        ready = prefetch(0, inputs.algorithm, learner, self._streams, inputs.steps, self._block)
        on_device = {name: store for name, store in self.stores.items() if name not in self._streams}
        return inputs._replace(stores=on_device, ahead=ready, begin=jnp.array(learner.update))

    @cached_property
    def _block(self) -> int:
        """The number of updates in one block of a log on disk; a block ends with its round."""
        (phase,) = self._phases
        blocks = [self._streams[draw.store].block(draw) for draw in samplers_of(phase) if draw.store in self._streams]
        rounds = -(-self._steps // self._size)
        return min([*blocks, max(1, *(self._schedule.asked(0, round) for round in range(rounds)))])

    def _collect(self, hosts: HostRollouts) -> list[Columns | None]:
        """Collect a rollout of every member for the current round; each learner gets its new recurrent state."""
        last = (self.position.round + 1) * self._size >= self._steps
        rollouts = hosts.rollouts(self.position.round, self._learners, last)
        for i, (_, carried) in enumerate(rollouts):
            learner = self._learners[i]
            if hosts.was_reset[i] and self.position.round:
                learner = with_new_episodes(self._algorithms[i], learner)
            self._learners[i] = learner._replace(collection_state=learner.collection_state._replace(carried=carried))
        return [columns for columns, _ in rollouts]

    def _blank_rollout(self, assignment: EnvAssignment) -> Columns:
        """Return columns with the shapes and types of a host rollout; their values are never read."""
        algorithm, state = self._algorithms[0], self._learners[0].state
        recorded = self._collected_log is not None
        columns = shapes(algorithm, algorithm.policy_params(state), assignment.spec, algorithm.collection(), recorded)
        return {name: jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), columns[name]) for name in columns}

    def _record(self, collected_log: CollectedLog) -> None:
        for i, learner in enumerate(self.learners):
            columns = flat_columns(jax.device_get(learner.segments[RECORDED_STORE].columns))
            begins = self._hosts.was_reset[i] if self._hosts is not None else self.position.round == 0
            collected_log.add(i, self.position.round, columns, begins)

    def environments(self) -> list[Named]:
        """Return the states of the host environments for a checkpoint; {} for one that cannot be saved."""
        return [] if self._hosts is None else self._hosts.environments()

    def environments_before(self) -> list[Named]:
        """Return the states of the host environments before the rollout that failed."""
        return [] if self._hosts is None else self._hosts.environments_before()

    def pending_params(self) -> list[Any]:
        """Return the policy params of the rollout that is collected ahead, of each member; empty if there is none."""
        return [] if self._hosts is None else self._hosts.pending_params()

    def wait(self) -> None:
        """Wait for the collecting thread, if there is one; the run can continue afterwards."""
        if self._hosts is not None:
            self._hosts.wait()

    def notes(self) -> list[str]:
        """Return notes about rounded steps, phases without updates, and an environment that cannot be saved."""
        if self._assignment is None:
            return []
        rounds, algorithm = -(-self._steps // self._size), self._collectors[0]
        notes = []
        if rounds * self._size != self._steps:
            notes.append(
                f"{self._steps:,} decisions are rounded up to {rounds * self._size:,}, that is {rounds} rollouts"
            )
        for phase in self._phases:
            if phase.updates is not None and not any(phase.updates(algorithm, round) for round in range(rounds)):
                notes.append(
                    f"the {phase.name} phase has no updates in {rounds} rounds. fix: use more steps, or shorter rounds"
                )
        if self._ahead:
            notes.append("rollouts are collected one round ahead, with the policy of one round before")
        if not all(host.resumable for host in self._assignment.hosts):
            name = self._assignment.hosts[0].environment.name
            notes.append(
                f"{name} cannot be saved: a resumed run starts new episodes and differs from an uninterrupted run"
            )
        return notes

    def discard_later_rollouts(self) -> None:
        """Delete stored rollouts that are later than the state of the run."""
        if self._collected_log is not None:
            self._collected_log.delete_after(int(self.learners[0].collection_state.rounds))

    def close(self) -> None:
        """Write the collected log, if there is one, at the end of the run."""
        if self._collected_log is not None:
            self._collected_log.write(self.position.round)

    def failures(self) -> list[tuple[Member, int]]:
        """Return the members with a non-finite metric, and the first update with such a metric."""
        failed = [int(learner.failed) for learner in self._placement.reporting(self._learners)]
        return [(member, at) for member, at in zip(self.members, failed, strict=True) if at >= 0]

    def report(self) -> list[dict[str, float]]:
        """Return the mean metrics of every member since the last call; in an environment also decisions and times."""
        metrics = [report(learner) for learner in self._placement.reporting(self._learners)]
        if self._assignment is not None:
            times = self._throughput.report(len(self.members))
            light = self._placement.reporting(self._learners)
            metrics = [
                {"decisions": int(one.collection_state.decisions)} | row | times
                for one, row in zip(light, metrics, strict=True)
            ]
        self._learners = [without_tallies(learner) for learner in self._learners]
        return metrics

    def peek(self) -> dict[str, float]:
        """Return the first member's metrics since the last report, without resetting them."""
        return report(self._placement.reporting(self._learners)[0])

    def rate(self, updates: float) -> float:
        """Return the growth of `done` per second: the given rate of updates, or the measured rate of decisions."""
        return updates if self._assignment is None else self._throughput.rate()
