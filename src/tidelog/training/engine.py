"""The training engine: members side by side, rounds of collection and phases, chunks of any length; no clocks or files.

Over a log, rounds have no collection, and each phase is one program. In an environment, whole rounds are one program:
a functional environment runs several rounds in one call; in a host environment each rollout is collected first. Members
differ in their seed or in their numbers and share one compilation. On accelerators they run stacked under `vmap`; on
CPU, where `vmap` gains nothing, each member runs its own program on a pool of threads. Letters: `S` members.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tidelog._machine import on_threads
from tidelog.algorithms.contract import Collecting, Phase
from tidelog.algorithms.sampling import Sampler
from tidelog.algorithms.segments import Columns, empty
from tidelog.envs.functional import Functional
from tidelog.envs.protocol import Resumable
from tidelog.errors import ConfigError, EnvironmentFailure
from tidelog.networks import native
from tidelog.networks.layers import new_key, scalar
from tidelog.training.collect import (
    CollectedLog,
    EnvAssignment,
    EpisodeCarry,
    Named,
    collection_key,
    flat_columns,
    shapes,
    with_new_episodes,
)
from tidelog.training.loop import (
    BATCH_AXIS,
    MAX_ROUND_STEPS,
    RECORDED_STORE,
    ChunkInputs,
    LearnerState,
    Member,
    Position,
    RoundInputs,
    RoundSchedule,
    RoundStep,
    Stores,
    advance,
    as_arrays,
    create_learner,
    first_collection_state,
    fresh_learners,
    metric_names,
    pack,
    planned_stores,
    prefetch,
    report,
    run_rounds,
    run_rounds_together,
    samplers_of,
    stack,
    stage_metrics,
    unstack,
    without_tallies,
)
from tidelog.training.stores import Stream, check_segments
from tidelog.types import Spec

# Which members train in one program, and on which devices. Letters: `S` members, `G` groups, `B` batch.
#
# A group is one member, or several that are stacked along a leading axis. Groups share nothing: with several devices
# each group has its own, with a copy of the data, and no group waits for another. A group may have several devices that
# share its batches: each holds the data and the learner, computes the gradients of its part of a batch, and XLA adds
# them up.


class Placement(NamedTuple):
    """The first member of each group [G + 1], the last entry is S; and where each group is.

    That is None for JAX's own choice, a device, or a sharding that puts a copy on each device of a mesh.
    """

    begins: tuple[int, ...]
    places: tuple[Any, ...]

    @classmethod
    def of(cls, members: int, vmap: bool, devices: int | Mapping[str, int] | None = None) -> Placement:
        """Return S members in groups: one for each place if `vmap`, else one for each member.

        ConfigError where there are fewer devices.
        """
        places = [None] if devices is None else _places(devices)
        groups = min(members, len(places)) if vmap else members
        begins = tuple(members * group // groups for group in range(groups + 1))
        return cls(begins, tuple(places[group % len(places)] for group in range(groups)))

    @property
    def meshes(self) -> list[Any]:
        """The mesh of devices that share the batches of each group [G]; None for a group on one device."""
        return [place.mesh if isinstance(place, NamedSharding) else None for place in self.places]

    @property
    def sizes(self) -> list[int]:
        """The number of members of each group [G]."""
        return [end - begin for begin, end in pairwise(self.begins)]

    @property
    def stacks(self) -> bool:
        """Whether a group has several members."""
        return self.begins[-1] > len(self.places)

    def grouped(self, parts: Sequence[Any]) -> list[Any]:
        """Return the parts of all members [S] as those of groups [G], on their devices."""
        groups = [parts[begin:end] for begin, end in pairwise(self.begins)]
        joined = [stack(list(group)) if len(group) > 1 else group[0] for group in groups]
        return [put(part, place) for part, place in zip(joined, self.places, strict=True)]

    def copies(self, part: Any) -> list[Any]:
        """Return a part that all groups read, for each of them [G]; groups in one place share it."""
        there = {place: put(part, place) for place in set(self.places)}
        return [there[place] for place in self.places]

    def apart(self, groups: Sequence[LearnerState]) -> list[LearnerState]:
        """Return one learner per member [S], each on one device."""
        return [
            unstack(one_copy(group), member) if end - begin > 1 else one_copy(group)
            for group, (begin, end) in zip(groups, pairwise(self.begins), strict=True)
            for member in range(end - begin)
        ]

    def state(self, groups: Sequence[LearnerState], index: int) -> Any:
        """Return the state of one member, on one device."""
        group = max(group for group, begin in enumerate(self.begins[:-1]) if begin <= index)
        alone = self.begins[group + 1] - self.begins[group] == 1
        state = one_copy(groups[group].state)
        return state if alone else unstack(state, index - self.begins[group])

    def reporting(self, groups: Sequence[LearnerState]) -> list[LearnerState]:
        """Return one learner per member with the fields that reports read; stacked learners then copy little."""
        if self.stacks:
            light = [one.collection_state for one in groups]
            light = [None if one is None else one._replace(env_states=None, carried=None) for one in light]
            groups = [
                group._replace(state=None, orders={}, segments={}, collection_state=one)
                for group, one in zip(groups, light, strict=True)
            ]
        return self.apart(groups)


def cores_as_devices(devices: int | Mapping[str, int] | None) -> None:
    """Ask JAX for so many devices of CPU, up to one a core.

    No effect once JAX has started, where its number of devices is set, and in one of several connected processes.
    """
    count = 1 if devices is None else prod(devices.values()) if isinstance(devices, Mapping) else devices
    by_flag = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    chosen = by_flag or jax.config.jax_num_cpu_devices != -1  # type: ignore[attr-defined]
    if 1 < count <= (os.cpu_count() or 1) and not chosen and not jax.distributed.is_initialized():
        with suppress(RuntimeError):  # JAX has started: `Placement.of` counts its devices
            jax.config.update("jax_num_cpu_devices", count)  # type: ignore[no-untyped-call]


def check_shares(phases: Sequence[Phase], devices: int) -> None:
    """Raise ConfigError unless that many devices can share the batches of all phases equally."""
    for phase in phases:
        for draw in jax.tree.leaves(phase.samplers, is_leaf=lambda value: isinstance(value, Sampler)):
            if draw.size % devices:
                less, more = draw.size // devices * devices, -(-draw.size // devices) * devices
                sizes = f"{less} or {more}" if less else str(more)
                raise ConfigError(
                    f"devices: {devices} devices cannot share the batches of the {phase.name} phase equally: "
                    f"{draw.size} samples",
                    f"a multiple of {devices}",
                    f"use batches of {sizes} samples, or another number of devices",
                )


def put(part: Any, place: Any) -> Any:
    """Return a part with its arrays in a place of a group; None leaves them where they are."""
    if place is None:
        return part
    arrays, rest = eqx.partition(part, eqx.is_array)
    arrays = (
        jax.tree.map(lambda leaf: _copies(leaf, place), arrays)
        if isinstance(place, NamedSharding)
        else jax.device_put(arrays, place)
    )
    return eqx.combine(arrays, rest)


def _copies(leaf: jax.Array, place: NamedSharding) -> jax.Array:
    """Return an array with a copy on each device of a mesh; every process puts its own, and sends nothing."""
    parts = [jax.device_put(leaf, device) for device in place.mesh.local_devices]
    array: jax.Array = jax.make_array_from_single_device_arrays(leaf.shape, place, parts)
    return array


def one_copy(part: Any) -> Any:
    """Return a part with its arrays on one device of this process; no array is copied."""

    def one(leaf: Any) -> Any:
        shared = isinstance(leaf, jax.Array) and isinstance(leaf.sharding, NamedSharding)
        return leaf.addressable_data(0) if shared else leaf

    return jax.tree.map(one, part)


def _places(devices: int | Mapping[str, int]) -> list[Any]:
    """Return a place for each group of members."""
    groups, batch = (devices, 1) if isinstance(devices, int) else (devices["members"], devices["batch"])
    local: list[Any] = jax.local_devices()
    count = jax.process_count()
    each = -(-batch // count)  # devices of each process in a group
    if groups * each > len(local) or batch % count:
        many = f"{len(local)} in each of {count} processes" if count > 1 else f"{len(local)}"
        others = f"devices={len(local)}" if batch == 1 else f"at most {count * len(local)} in all"
        if local[0].platform == "cpu" and count == 1 and groups * batch <= (os.cpu_count() or 1):
            others = f"jax.config.update('jax_num_cpu_devices', {groups * batch}) before anything else of JAX"
        raise ConfigError(
            f"devices = {devices}: this machine has {many} ({local[0].platform})",
            fix=f"use {others}, or leave it out; a run of several processes goes on in as many",
        )
    if batch == 1:
        return local[:groups]
    by_process = [[one for one in jax.devices() if one.process_index == rank] for rank in range(count)]
    places = [slice(group * each, (group + 1) * each) for group in range(groups)]
    meshes = (
        Mesh(np.array([one for ranked in by_process for one in ranked[place]]), (BATCH_AXIS,)) for place in places
    )
    return [NamedSharding(mesh, PartitionSpec()) for mesh in meshes]  # type: ignore[no-untyped-call]


# Learners before their first decision in an environment, with all their stores.


def planned_updates(algorithm: Collecting, steps: int) -> int:
    """Return the number of updates of a run of `steps` decisions."""
    collection = algorithm.collection()
    rounds = -(-steps // (collection.num_envs * collection.steps))
    updates_of_phases = [phase.updates for phase in algorithm.phases()]
    return sum(
        updates(algorithm, round) for round in range(rounds) for updates in updates_of_phases if updates is not None
    )


def fresh_collectors(
    members: list[Member],
    spec: Spec,
    source: Functional | None,
    steps: int,
    recorded: bool,
    stores: Stores | None = None,
    vmap: bool | None = None,
) -> list[LearnerState]:
    """Create learners before their first decision; each depends only on its own seed and settings.

    `stores` are those that do not change. Raises MemoryLimitError if their own do not fit. `vmap` is that of the run.
    """
    updates = planned_updates(members[0].algorithm, steps)
    states = [member.algorithm.init(spec, new_key(member.seed), updates) for member in members]
    collectors = [(member.algorithm, member.seed) for member in members]
    return initial_learners(collectors, states, spec, source, recorded, stores or {}, vmap)


def initial_learners(
    collectors: list[tuple[Any, int]],
    states: list[Any],
    spec: Spec,
    source: Functional | None,
    recorded: bool,
    stores: Stores,
    vmap: bool | None = None,
) -> list[LearnerState]:
    """Create learners with these states, for pairs of algorithm and seed, before their first decision."""
    algorithm_arrays = as_arrays(collectors[0][0])
    planned = planned_stores(algorithm_arrays, states[0], spec, recorded)
    vmap = jax.default_backend() != "cpu" if vmap is None else vmap
    check_segments(planned, len(collectors), vmap and len(collectors) > 1 and source is not None)
    segments = [{name: empty(*store) for name, store in planned.items()} for _ in collectors]
    metrics = metric_names(algorithm_arrays, states[0], {**stores, **segments[0]})
    metrics |= stage_metrics(algorithm_arrays, states[0], planned)
    return [
        create_learner(
            algorithm,
            state,
            stores,
            seed,
            metrics,
            own,
            first_collection_state(algorithm, state, source, seed),
        )
        for (algorithm, seed), state, own in zip(collectors, states, segments, strict=True)
    ]


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
        vmap: bool | None = None,
        collected_log: CollectedLog | None = None,
        devices: int | Mapping[str, int] | None = None,
        kernels: bool | None = None,
    ) -> None:
        """`stores` do not change; with an environment `assignment`, rounds begin with collection.

        `collectors` are the algorithms that collect and learn, if they are not the members' own. With `devices` members
        are spread over that many, or, with {"members": M, "batch": N}, over M groups of N devices that share each
        batch. `kernels` computes dense layers natively (None: where this process can), but not those of stacked members
        and shared batches. ConfigError where there are fewer, or where a batch cannot be shared equally, and for a host
        environment or a log on disk.
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
            self._size, self._updates = collection.num_envs * collection.steps, planned_updates(first, steps)
        self._schedule = RoundSchedule(first, self._size, steps)
        here = not self._streams and (assignment is None or assignment.source is not None)
        vmap = jax.default_backend() != "cpu" if vmap is None else vmap
        if devices is not None and not here:
            raise ConfigError(
                f"devices = {devices}: members are spread where all of their data is on the device: a log in "
                "memory, or a functional environment (jax:NAME)",
                fix="leave devices out",
            )
        if isinstance(devices, Mapping):
            check_shares(self._phases, devices["batch"])
        self._together = vmap and len(members) > 1 and here
        self._placement = Placement.of(len(members), self._together, devices)
        precision = getattr(first, "matmul_precision", "float32")
        kernels = native.can_multiply(precision) if kernels is None else kernels
        alone = not self._together and not any(self._placement.meshes)
        self._native = precision if kernels and alone else None
        self._algorithms = self._placement.grouped(numbers)
        self._learners = self._placement.grouped(learners)
        self._stores = self._placement.copies(self.stores)
        self._compiled: set[int] = set()  # compiled phases over a log; -1 for whole rounds
        self._seconds, self._decisions, self._rate = 0.0, 0, 0.0  # of chunks since the last report, and per second
        self._timed = 0  # updates from a log in these seconds
        self._hosts = [] if assignment is None else assignment.hosts
        self._failed = False  # whether a rollout failed, and the environments must be restored first
        self._blank = self._blank_rollout(assignment) if assignment is not None and self._hosts else None

    @classmethod
    def fresh(cls, members: list[Member], spec: Any, stores: Stores, steps: int, vmap: bool | None = None) -> Engine:
        """Create an engine that learns from a log, at update 0."""
        return cls(members, fresh_learners(members, spec, stores, steps), steps, stores=stores, vmap=vmap)

    @property
    def products(self) -> str:
        """What computes the dense layers: "native" or "XLA"."""
        return "XLA" if self._native is None else "native"

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
        start = time.monotonic()
        self._run_phase(phase, count)
        self._seconds, self._timed = self._seconds + time.monotonic() - start, self._timed + count
        self._compiled.add(phase)
        self.update += count
        self.position = self.position._replace(updates=self.position.updates + count)
        return count

    def _advance_rounds(self, most: int, until: int | None) -> int:
        """Run whole rounds, or a part of one."""
        start, before = time.monotonic(), self.done
        steps, after, taken = self._next(most, self._steps if until is None else until)
        rollouts = [self._blank] * len(self._learners)
        if steps[0].collect and self._hosts:
            rollouts = self._collect()
        self._run(steps, rollouts)
        if self._collected_log is not None and steps[0].collect:
            self._record(self._collected_log)
        self.update += taken
        self.position = after
        self._seconds += time.monotonic() - start
        self._decisions += self.done - before
        if self._decisions:
            self._rate = self._decisions / max(self._seconds, 1e-9)
        return taken

    # Programs.

    def _run_phase(self, phase: int, count: int) -> None:
        """Run updates of one phase over a log, in every member."""
        programs = [advance(phase, many > 1) for many in self._placement.sizes]

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
            with native.in_training(self._native):
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

    def _next(self, most: int, until: int) -> tuple[list[RoundStep], Position, int]:
        """Return the next round steps, the position after them, and their number of updates."""
        one_by_one = bool(self._hosts) or self._collected_log is not None or bool(self._streams)
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

    def _collect(self) -> list[Columns | None]:
        """Collect a rollout of every member for the current round; each learner gets its new recurrent state.

        EnvironmentFailure names the member's seed; another call collects the rollout again.
        """
        round, collection = self.position.round, self._algorithms[0].collection()
        for host in self._hosts:
            if self._failed:
                host.restore(host.before)
            host.before = host.save()
        self._failed = False

        def one(index: int) -> tuple[Columns, EpisodeCarry | None]:
            algorithm, learner = self._algorithms[index], self._learners[index]
            params, key = algorithm.policy_params(learner.state), collection_key(learner.key, round)
            carried = learner.collection_state.carried
            try:
                return self._hosts[index].rollout(
                    algorithm, params, key, round, collection.steps, carried, collection.num_chunks
                )
            except EnvironmentFailure as error:
                self._failed = True
                found = f"{error.problem} (seed {self.members[index].seed})"
                raise EnvironmentFailure(found, fix=error.fix) from error

        rollouts = on_threads(one, len(self._hosts), round > 0)
        for i, (_, carried) in enumerate(rollouts):
            learner = self._learners[i]
            if self._hosts[i].was_reset and round:
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
            begins = self._hosts[i].was_reset if self._hosts else self.position.round == 0
            collected_log.add(i, self.position.round, columns, begins)

    def environments(self) -> list[Named]:
        """Return the states of the host environments for a checkpoint; {} for one that cannot be saved."""
        return [host.save() or {} for host in self._hosts]

    def environments_before(self) -> list[Named]:
        """Return the states of the host environments before the rollout that failed."""
        return [host.before or {} for host in self._hosts]

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
        if not all(isinstance(host.environment, Resumable) for host in self._hosts):
            name = self._hosts[0].environment.name
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
        """Return the mean metrics of every member since the last call, and times; in an environment also decisions.

        Seconds an update are of the wall clock, for all members side by side.
        """
        metrics = [report(learner) for learner in self._placement.reporting(self._learners)]
        if self._timed:
            metrics = [row | {"time/seconds_per_update": self._seconds / self._timed} for row in metrics]
            self._seconds, self._timed = 0.0, 0
        if self._assignment is not None:
            times = {"time/decisions_per_second": len(self.members) * self._rate}
            self._seconds, self._decisions = 0.0, 0
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
        return updates if self._assignment is None else self._rate
