"""The compiled loop: learner states, members, the plan and the schedule of rounds, validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tidelog.algorithms.contract import Algorithm, Collecting, Collection, Feedback, Phase, StoreSpec
from tidelog.algorithms.sampling import Sampler, Samples, StoredLog
from tidelog.algorithms.segments import Columns, Segments, added, drawn, looked_at
from tidelog.envs.functional import Functional
from tidelog.errors import ConfigError
from tidelog.networks import native
from tidelog.networks.layers import float32, fold_in, new_key, rounded, scalar, zeros
from tidelog.recommend.next_item import StoredInteractions
from tidelog.schema import Count
from tidelog.training.collect import (
    RECORDED,
    CollectionState,
    collection_key,
    count_episodes,
    initial_collection_state,
    rollout,
    shape_of,
    shapes,
)
from tidelog.training.stores import Stream
from tidelog.types import Spec

# One learner and its compiled update loop: sampling, steps, priorities and tallies in one program.
#
# The number of updates is an argument: one compilation serves every chunk, and the bits do not depend on chunk
# boundaries. Letters: `S` members side by side.

Stores = Mapping[str, StoredLog | Stream | Segments | StoredInteractions]
MetricNames = dict[str, tuple[str, ...]]  # by phase
BLOCK = 16  # updates between two checks that metrics are finite; the first `BLOCK` updates are checked one by one
BATCH_AXIS = "batch"  # of a mesh of devices that share the batches of a learner
FIRST_ORDERS = 2**31 - 1  # fold-in number of the initial orders; no update has this number


class Tally(NamedTuple):
    """Sums of a phase's metrics since the last report."""

    sums: dict[str, jax.Array]
    updates: jax.Array  # int32


class LearnerState(NamedTuple):
    """Everything that changes while one member trains; its checkpoint holds all of it."""

    state: Any
    orders: dict[str, Any]  # a phase's name -> the states of its samplers' orders, structured as its `samplers`
    tallies: dict[str, Tally]
    key: jax.Array  # for sampling
    update: jax.Array  # int32: updates done, over all phases
    failed: jax.Array  # int32: the first update (or the first of its block) with a non-finite metric, or -1
    segments: dict[str, Segments] = {}  # noqa: RUF012 - its own stores, if it learns in an environment
    collection_state: Any = None  # its collection state there


def create_learner(
    algorithm: Algorithm,
    state: Any,
    stores: Stores,
    seed: int,
    metrics: MetricNames,
    segments: dict[str, Segments] | None = None,
    collection_state: Any = None,
) -> LearnerState:
    """Create a learner at update 0; its samples depend only on the seed."""
    tallies = {phase: Tally({name: zeros() for name in names}, scalar(0)) for phase, names in metrics.items()}
    key, every = fold_in(new_key(seed), 1), {**stores, **(segments or {})}
    first = fold_in(key, FIRST_ORDERS)

    def begin(draw: Sampler, key: jax.Array) -> Any:
        return draw.order.init(count(draw, every[draw.store]), key)

    orders = {
        phase.name: _each(phase, begin, _keys(phase, fold_in(first, i))) for i, phase in enumerate(algorithm.phases())
    }
    return LearnerState(state, orders, tallies, key, scalar(0), scalar(-1), segments or {}, collection_state)


def metric_names(algorithm: Algorithm, state: Any, stores: Stores) -> MetricNames:
    """Trace one step of each phase, and return the names of its metrics."""

    def example_batch(draw: Sampler) -> Any:
        store = stores[draw.store]
        return draw.batch(store.example(draw) if isinstance(store, Stream) else store, *_first(draw, store))[0]

    def names(number: int, phase: Phase) -> tuple[str, ...]:
        batch = jax.eval_shape(lambda: _each(phase, example_batch))
        return tuple(eqx.filter_eval_shape(_step, number, algorithm, state, batch)[1].metrics)

    precision = getattr(algorithm, "matmul_precision", "float32")
    with native.in_training(precision if native.can_multiply(precision) else None):  # as the program will trace it
        return {phase.name: names(number, phase) for number, phase in enumerate(algorithm.phases())}


def _step_of(number: int, algorithm: Algorithm, state: Any, batch: Any) -> tuple[Any, Feedback]:
    """Do one step of a phase, with the algorithm's `matmul_precision` where it has them."""
    with rounded(getattr(algorithm, "matmul_precision", "float32")):
        return algorithm.phases()[number].step(algorithm, state, batch)


# traced once in a process for equal settings and shapes, and part of every program; `inline` is jax.jit's
_step: Callable[[int, Algorithm, Any, Any], tuple[Any, Feedback]] = eqx.filter_jit(_step_of, inline=True)  # type: ignore[call-overload]


def _first(draw: Sampler, store: Any) -> tuple[Any, jax.Array, jax.Array]:
    samples = count(draw, store) if isinstance(store, Segments) else 1
    return draw.order.init(samples, jax.random.key(0)), jax.random.key(0), jnp.zeros(())


def count(draw: Sampler, store: Any) -> int:
    """Return the number of samples that a sampler draws from."""
    return store.count(draw.unit) if isinstance(store, Stream) else draw.unit.rows(store)[0]


def _each(phase: Phase, function: Callable[..., Any], *trees: Any) -> Any:
    """Apply a function to each sampler of a phase and its part of other trees, in the structure of `samplers`."""
    return jax.tree.map(function, phase.samplers, *trees, is_leaf=lambda value: isinstance(value, Sampler))


def _split(phase: Phase, pairs: Any) -> tuple[Any, Any]:
    return _each(phase, lambda _, pair: pair[0], pairs), _each(phase, lambda _, pair: pair[1], pairs)


def _keys(phase: Phase, key: jax.Array) -> Any:
    if isinstance(phase.samplers, Sampler):
        return key
    return {name: fold_in(key, i) for i, name in enumerate(sorted(phase.samplers))}


class SampleBlock(NamedTuple):
    """The samples of a block of `K` updates, fetched before the block begins."""

    store: StoredLog | Segments
    slots: jax.Array  # [K, B] int32: their positions in that store
    indices: jax.Array  # [K, B] int32: their indices among all samples
    importance: jax.Array | None  # [K, B]
    offset: jax.Array | None = None  # windows only, [K, B]: the position of each drawn row in its window

    def batch(self, draw: Sampler, at: jax.Array) -> tuple[Any, jax.Array]:
        """Return the batch of one update of the block, and the indices of its samples."""
        importance = None if self.importance is None else self.importance[at]
        offset = None if self.offset is None else self.offset[at]
        return draw.at(self.store, self.slots[at], importance, offset), self.indices[at]


class ChunkInputs(NamedTuple):
    """The constant inputs of a chunk."""

    algorithm: Any  # number leaves as arrays
    stores: Stores
    updates: jax.Array  # int32: updates of this chunk
    steps: jax.Array  # int32: updates of the whole run
    since: jax.Array  # int32: updates done before this chunk
    ahead: Any = None  # a `SampleBlock` for each sampler whose store is not in `stores`; None: all are in `stores`
    begin: jax.Array | None = None  # int32: the update at which these samples begin
    mesh: Mesh | None = None  # the devices that share the batches; None: one device


STACKED = ChunkInputs(eqx.if_array(0), None, None, None, None)  # type: ignore[arg-type]  # the axes of stacked learners


def _draw(inputs: ChunkInputs, phase: Phase, learner: LearnerState) -> tuple[Any, Any]:
    stores: Any = {**inputs.stores, **learner.segments}
    keys, progress = _keys_and_progress(phase, learner, learner.update, inputs.steps)

    def one(draw: Sampler, order: Any, key: jax.Array, ready: SampleBlock | None) -> Any:
        if ready is None or inputs.begin is None:
            return draw.batch(stores[draw.store], order, key, progress)
        return ready.batch(draw, learner.update - inputs.begin)

    ahead = _each(phase, lambda draw: None) if inputs.ahead is None else inputs.ahead
    with jax.named_scope("sampling"):
        batch, indices = _split(phase, _each(phase, one, learner.orders[phase.name], keys, ahead))
    return _constrained(batch, inputs.mesh, BATCH_AXIS), indices


T = TypeVar("T")


def _constrained(part: T, mesh: Mesh | None, *axes: str) -> T:
    """Return a part with arrays that are cut along their leading axis among devices; without `axes`, copied to all.

    XLA cuts the step along with the batch, and adds up what it sums over samples.
    """
    if mesh is None:
        return part
    arrays, rest = eqx.partition(part, eqx.is_array)
    sharding = NamedSharding(mesh, PartitionSpec(*axes))  # type: ignore[no-untyped-call]
    constrained = jax.lax.with_sharding_constraint(arrays, sharding)  # type: ignore[no-untyped-call]
    whole: T = eqx.combine(constrained, rest)
    return whole


def _keys_and_progress(
    phase: Phase, learner: LearnerState, update: jax.Array, steps: jax.Array
) -> tuple[Any, jax.Array]:
    """Return the keys of an update's samplers, and the share of the run that is done."""
    return _keys(phase, jax.random.fold_in(learner.key, update)), update / jnp.maximum(steps, 1)


@eqx.filter_jit
def draw_ahead(
    phase_index: int, algorithm: Any, learner: LearnerState, steps: jax.Array, counts: Any, block: int
) -> Any:
    """Draw the samples [K, B] of the next `block` updates, equal to those drawn one update at a time.

    `counts` are the numbers of samples that each sampler draws from; a sampler without one is left out.
    """
    phase = algorithm.phases()[phase_index]
    orders = learner.orders[phase.name]

    def one(i: jax.Array) -> Any:
        keys, progress = _keys_and_progress(phase, learner, learner.update + i, steps)
        return _each(
            phase,
            lambda draw, order, key, count: None if count is None else draw.choose(order, key, count, progress),
            orders,
            keys,
            counts,
        )

    return jax.lax.map(one, jnp.arange(block))


def prefetch(
    phase_index: int, algorithm: Any, learner: LearnerState, stores: Stores, steps: jax.Array, block: int
) -> Any:
    """Return a `SampleBlock` for each sampler of a phase: the next `block` updates, fetched from their store.

    None for a sampler whose store is not in `stores`: the update itself draws from it.
    """
    phase = algorithm.phases()[phase_index]
    counts = _each(phase, lambda draw: jnp.int32(count(draw, stores[draw.store])) if draw.store in stores else None)
    samples = draw_ahead(phase_index, algorithm, learner, steps, counts, block)
    return _each(phase, lambda draw, drawn: drawn and _fetched(draw, stores[draw.store], drawn), samples)


def _fetched(draw: Sampler, store: Any, samples: Samples) -> SampleBlock:
    indices, importance, offset = samples
    if isinstance(store, StoredLog):
        rows = draw.unit.rows(store)[1]
        return SampleBlock(store, indices if rows is None else rows[indices], indices, importance, offset)
    around = () if offset is None else (np.asarray(offset).reshape(-1),)
    small, slots = store.fetch(store.rows(draw.unit, np.asarray(indices).reshape(-1)), draw.unit, *around)
    return SampleBlock(small, jnp.asarray(slots.reshape(indices.shape)), indices, importance, offset)


def one_update(inputs: ChunkInputs, phase: Phase, learner: LearnerState) -> LearnerState:
    """Draw a batch, take a step, return the priorities to the samplers, and add the metrics to the tally."""
    batch, indices = _draw(inputs, phase, learner)
    number = [one.name for one in inputs.algorithm.phases()].index(phase.name)
    mesh = inputs.mesh  # networks see the devices that share the batch
    with nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        state, feedback = _step(number, inputs.algorithm, learner.state, batch)
    learnt: tuple[Any, Any] = (indices, feedback.priority)
    indices, priority = _constrained(learnt, inputs.mesh)  # each device learns all priorities
    segments = dict(learner.segments)
    if isinstance(phase.samplers, Sampler):
        pairs = [(phase.samplers, indices)]
    else:
        priority = {name: (priority or {}).get(name) for name in phase.samplers}
        pairs = [(draw, indices[name]) for name, draw in phase.samplers.items()]
    for draw, rows in pairs:
        if getattr(draw.order, "uses_up", False):  # its draws are uses of segments
            segments[draw.store] = drawn(segments[draw.store], rows)
    orders = _each(
        phase,
        lambda draw, order, rows, p: draw.order.learn(order, rows, p),
        learner.orders[phase.name],
        indices,
        priority,
    )
    tally = learner.tallies[phase.name]
    sums = {name: tally.sums[name] + value for name, value in feedback.metrics.items()}
    moved = learner._replace(
        state=state,
        orders={**learner.orders, phase.name: orders},
        tallies={**learner.tallies, phase.name: Tally(sums, tally.updates + 1)},
        update=learner.update + 1,
        segments=segments,
    )
    return _constrained(moved, inputs.mesh)


def _advance(phase_index: int, inputs: ChunkInputs, learner: LearnerState) -> LearnerState:
    """Take `inputs.updates` updates, and check once per block that the sums of metrics are finite.

    A check in every update took 15% of the time of discrete BCQ on CPU. Blocks end at fixed updates, independent of
    the chunk.
    """
    phase = inputs.algorithm.phases()[phase_index]
    moving, fixed = eqx.partition(learner, eqx.is_array)
    end = inputs.since + inputs.updates

    def update(_: Any, moving: Any) -> Any:
        return eqx.filter(one_update(inputs, phase, eqx.combine(moving, fixed)), eqx.is_array)

    def block(now: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        begin, moving = now
        size = jnp.minimum(jnp.where(begin < BLOCK, 1, BLOCK - begin % BLOCK), end - begin)
        moved: LearnerState = eqx.combine(jax.lax.fori_loop(0, size, update, moving), fixed)
        return begin + size, eqx.filter(_mark_failure(phase, moved, begin), eqx.is_array)

    _, moving = jax.lax.while_loop(lambda now: now[0] < end, block, (inputs.since, moving))
    done: LearnerState = eqx.combine(moving, fixed)
    return done


def _mark_failure(phase: Phase, learner: LearnerState, begin: jax.Array) -> LearnerState:
    """Mark the block of update `begin` as the learner's first failure, unless its sums are finite."""
    finite = jnp.isfinite(sum(learner.tallies[phase.name].sums.values(), start=jnp.zeros(())))
    first = jnp.where(begin < BLOCK, begin, begin - begin % BLOCK)
    return learner._replace(failed=jnp.where((learner.failed < 0) & ~finite, first, learner.failed))


# LLVM takes vectors of 256 bits where 512 are there; with these an update of discrete BCQ is 1.03 times as fast
_OPTIONS = {"xla_cpu_prefer_vector_width": 512}


def _program(function: Callable[..., LearnerState]) -> Callable[..., LearnerState]:
    """Return a function of constant inputs and a learner as a compiled program, which takes the learner's buffers."""
    program = eqx.filter_jit(function, donate="all-except-first", compiler_options=_OPTIONS)  # type: ignore[call-overload]
    return cast(Callable[..., LearnerState], program)


@cache
def advance(phase_index: int, stacked: bool) -> Callable[[ChunkInputs, LearnerState], LearnerState]:
    """Return the compiled chunk of a phase for one learner, or for `S` learners and algorithms that are `stacked`.

    It donates the buffers of the learners.
    """

    def chunk(inputs: ChunkInputs, learner: LearnerState) -> LearnerState:
        if not stacked:
            return _advance(phase_index, inputs, learner)
        many = eqx.filter_vmap(partial(_advance, phase_index), in_axes=(STACKED, eqx.if_array(0)))
        moved: LearnerState = many(inputs, learner)
        return moved

    return _program(chunk)


def as_arrays(algorithm: Any) -> Any:
    """Return the algorithm with its numbers as float32 scalars: other numbers then need no recompilation."""
    return jax.tree.map(lambda number: float32(np.asarray(number)), algorithm)


def without_tallies(learner: LearnerState) -> LearnerState:
    """Return the learner with the sums of its metrics set to zero."""
    return learner._replace(tallies=jax.tree.map(jnp.zeros_like, learner.tallies))


def report(learner: LearnerState) -> dict[str, float]:
    """Return the mean of every metric since the tallies were last set to zero; phases without updates are left out."""
    means: dict[str, float] = {}
    for name, tally in jax.device_get(learner.tallies).items():
        for metric, total in tally.sums.items() if tally.updates else ():
            means[_label(learner, name, metric)] = float(total) / int(tally.updates)
    return means


def metric_labels(learner: LearnerState) -> list[str]:
    """Return the names of the metrics in reports of this learner."""
    return [_label(learner, name, metric) for name, tally in learner.tallies.items() for metric in tally.sums]


def _label(learner: LearnerState, phase: str, metric: str) -> str:
    return metric if len(learner.tallies) == 1 else f"{phase}/{metric}"


def stack(learners: list[Any]) -> Any:
    """Stack the arrays of pytrees with one structure along a new leading axis `S`."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *learners)


def unstack(stacked: Any, index: int) -> Any:
    """Return member `index` of a stacked pytree."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, stacked)


# Members of a run, their learners at the start, and the position of a run in its rounds.


@dataclass(frozen=True)
class Member:
    """One algorithm with one seed, trained side by side with other members."""

    index: int
    algorithm: Any
    seed: int


class Position(NamedTuple):
    """The position of a run in its rounds: `phase` of `round` has done `updates` updates."""

    round: Count = 0
    phase: Count = 0
    updates: Count = 0


def fresh_learners(members: list[Member], spec: Any, stores: Stores, steps: int) -> list[LearnerState]:
    """Return learners at update 0; each depends only on its own seed and settings."""
    states = [member.algorithm.init(spec, new_key(member.seed), steps) for member in members]
    metrics = metric_names(as_arrays(members[0].algorithm), states[0], stores)
    return [
        create_learner(member.algorithm, state, stores, member.seed, metrics)
        for member, state in zip(members, states, strict=True)
    ]


def as_members(algorithms: Sequence[Any], seeds: Sequence[int]) -> list[Member]:
    """Return a member for every algorithm of a population and every seed."""
    pairs = [(algorithm, seed) for algorithm in algorithms for seed in seeds]
    return [Member(i, algorithm, seed) for i, (algorithm, seed) in enumerate(pairs)]


# Rounds as one compiled program; the plan is an argument, therefore the bits do not depend on chunk boundaries.
#
# A plan has one round step per round: whether to collect first, and for each phase whether it begins, its number of
# updates, and whether it ends. If a round is cut in the middle, the next round step begins where the last one ended.
# Letters: `R` round steps, `P` phases.

MAX_ROUND_STEPS = 64  # most round steps in one call of the program
COLLECT = "collect"  # the name of the collection stage, among the phases' names
METRICS = ("return", "length")
RECORDED_STORE = "recorded"  # the store of the collected log


class RoundStep(NamedTuple):
    """The work of one round, or of a part of it."""

    collect: bool
    begin: tuple[bool, ...]  # P
    updates: tuple[int, ...]  # P
    end: tuple[bool, ...]  # P


class RoundPlan(NamedTuple):
    """Round steps as arrays, padded to one length."""

    rows: jax.Array  # int32: number of round steps
    collect: jax.Array  # [R] int32
    begin: jax.Array  # [R, P] int32
    updates: jax.Array  # [R, P] int32
    end: jax.Array  # [R, P] int32


def pack(steps: list[RoundStep], phases: int) -> RoundPlan:
    """Pack round steps into a plan."""

    def pad(values: Any, *shape: int) -> Any:
        array = np.zeros((MAX_ROUND_STEPS, *shape), np.int32)
        array[: len(steps)] = np.asarray(values, np.int32).reshape(len(steps), *shape)
        return array

    parts = ([step[i] for step in steps] for i in range(1, 4))
    return RoundPlan(np.int32(len(steps)), pad([step.collect for step in steps]), *(pad(p, phases) for p in parts))  # type: ignore[arg-type]


class RoundInputs(NamedTuple):
    """The constant inputs of the program."""

    chunk: ChunkInputs
    plan: RoundPlan
    source: Functional | None
    rollout: Columns | None  # the host rollout before the first round step


# Stores.


def planned_stores(
    algorithm: Collecting, state: Any, spec: Spec, recorded: bool = False
) -> dict[str, tuple[Columns, StoreSpec]]:
    """Return the column shapes [any, T, ...] and the spec of each store, including the columns that phases prepare."""
    collection = algorithm.collection()
    rollout_shapes = shapes(algorithm, algorithm.policy_params(state), spec, collection, recorded)
    complete = collection.complete
    if complete is not None:
        rollout_shapes |= jax.eval_shape(lambda columns: complete(algorithm, state, columns)[1], rollout_shapes)
    specs = {name: one for name, one in algorithm.stores(spec).items() if one.capacity is not None}
    if recorded:
        specs = {**specs, RECORDED_STORE: StoreSpec(RECORDED, collection.num_envs)}
    columns = {name: _select(rollout_shapes, specs[name].columns) for name in _stores_of_rollouts(collection, recorded)}
    for phase in algorithm.phases():
        if phase.prepare is not None:
            store = store_of(phase)
            full = _full(columns[store], specs[store].capacity or 0)
            columns[store] |= jax.eval_shape(lambda c, p=phase: p.prepare(algorithm, state, c)[1], full)
        if phase.into is not None:
            columns[phase.into] = _select(columns[store_of(phase)], specs[phase.into].columns)
    return {name: (columns[name], one) for name, one in specs.items()}


def samplers_of(phase: Phase) -> tuple[Sampler, ...]:
    """Return all samplers of a phase."""
    return (phase.samplers,) if isinstance(phase.samplers, Sampler) else tuple(phase.samplers.values())


def _select(columns: Columns, names: tuple[str, ...]) -> Columns:
    return {name: columns[name] for name in names if name in columns}


def _full(columns: Columns, capacity: int) -> Columns:
    return {
        name: jax.tree.map(lambda leaf: shape_of(leaf, capacity, *leaf.shape[1:]), columns[name]) for name in columns
    }


def _stores_of_rollouts(collection: Collection, recorded: bool) -> tuple[str, ...]:
    return (*collection.into, *((RECORDED_STORE,) if recorded else ()))


def _stores_of_learner(learner: LearnerState, algorithm: Collecting) -> tuple[str, ...]:
    return _stores_of_rollouts(algorithm.collection(), RECORDED_STORE in learner.segments)


def store_of(phase: Phase) -> str:
    """Return the store that a phase prepares and concludes."""
    if phase.over is not None:
        return phase.over
    if not isinstance(phase.samplers, Sampler):
        raise TypeError(
            f"phase '{phase.name}' reads several stores, so the store of prepare and conclude is unknown. fix: name it "
            "in Phase.over"
        )
    return phase.samplers.store


def stage_metrics(
    algorithm: Collecting, state: Any, planned: Mapping[str, tuple[Columns, StoreSpec]]
) -> dict[str, tuple[str, ...]]:
    """Return the metric names of the collection, and of the phases that have `conclude`."""
    names: dict[str, tuple[str, ...]] = {COLLECT: METRICS}
    for phase in algorithm.phases():
        if phase.conclude is not None:
            shapes, store_spec = planned[store_of(phase)]
            columns = _full(shapes, store_spec.capacity or 0)
            metrics = jax.eval_shape(lambda c, p=phase: p.conclude(algorithm, state, c), columns)
            names[after_name(phase)] = tuple(metrics)
    return names


def after_name(phase: Phase) -> str:
    """Return the name of the metrics that a phase reports at its end, among the phases' names."""
    return f"after {phase.name}"


# The program.


def collect(inputs: RoundInputs, learner: LearnerState) -> LearnerState:
    """Collect a rollout, or take the host rollout; add it to the stores and count the episodes that ended."""
    algorithm, collection_state = inputs.chunk.algorithm, learner.collection_state
    columns, collection, state = inputs.rollout or {}, algorithm.collection(), learner.state
    if inputs.source is not None:
        key = collection_key(learner.key, collection_state.rounds)
        params = algorithm.policy_params(state)
        names = frozenset().union(*(learner.segments[name].columns for name in _stores_of_learner(learner, algorithm)))
        collection_state, columns = rollout(
            inputs.source, algorithm, params, collection_state, key, collection.steps, names, collection.num_chunks
        )
    collection_state, sums, episodes = count_episodes(collection_state, columns)
    raw = columns  # a log has the observations of the environment
    if collection.complete is not None:
        state, more = collection.complete(algorithm, state, columns)
        columns = columns | more
    stores = {name: added(learner.segments[name], raw if name == RECORDED_STORE else columns)
              for name in _stores_of_learner(learner, algorithm)}  # fmt: skip
    segments = learner.segments | stores
    learner = learner._replace(state=state, segments=segments, collection_state=collection_state)
    return _add_to_tally(learner, COLLECT, sums, episodes)


def prepare(phase: Phase, inputs: RoundInputs, learner: LearnerState) -> LearnerState:
    """Run `prepare` of a phase over its store, before the updates."""
    if phase.prepare is None:
        return learner
    name = store_of(phase)
    store = learner.segments[name]
    state, columns = phase.prepare(inputs.chunk.algorithm, learner.state, looked_at(store))
    ready = store._replace(columns=store.columns | columns)
    return learner._replace(state=state, segments=learner.segments | {name: ready})


def conclude(phase: Phase, inputs: RoundInputs, learner: LearnerState) -> LearnerState:
    """Run `conclude` of a phase over its store after the updates, and move or empty its segments."""
    if phase.conclude is None and phase.into is None and not phase.empties:
        return learner
    name = store_of(phase)
    store = learner.segments[name]
    if phase.conclude is not None:
        columns = looked_at(store)
        metrics = phase.conclude(inputs.chunk.algorithm, learner.state, columns)
        means = {name: jnp.mean(values, where=columns["valid"]) for name, values in metrics.items()}
        learner = _add_to_tally(learner, after_name(phase), means, jnp.int32(1))
    segments = dict(learner.segments)
    if phase.into in segments:
        segments[phase.into] = added(segments[phase.into], store.columns)
    if phase.empties:
        segments[name] = segments[name]._replace(filled=jnp.int32(0))
    return learner._replace(segments=segments)


def _add_to_tally(learner: LearnerState, name: str, sums: dict[str, jax.Array], count: jax.Array) -> LearnerState:
    before = learner.tallies[name]
    now = Tally({metric: before.sums[metric] + value for metric, value in sums.items()}, before.updates + count)
    return learner._replace(tallies={**learner.tallies, name: now})


def _rounds(inputs: RoundInputs, learner: LearnerState) -> LearnerState:
    chunk, plan = inputs.chunk, inputs.plan
    moving, fixed = eqx.partition(learner, eqx.is_array)

    def repeat(count: jax.Array, function: Callable[[LearnerState], LearnerState], moving: Any) -> Any:
        """Apply a function `count` times, in place; without the barrier XLA hoists its work, even for 0 times."""

        def body(time: jax.Array, moving: Any) -> Any:
            moving, _ = jax.lax.optimization_barrier((moving, time))  # type: ignore[no-untyped-call]
            return eqx.filter(function(eqx.combine(moving, fixed)), eqx.is_array)

        return jax.lax.fori_loop(0, count, body, moving)

    def update(phase: Phase, learner: LearnerState) -> LearnerState:
        return _mark_failure(phase, one_update(chunk, phase, learner), learner.update)

    def one(step: jax.Array, moving: Any) -> Any:
        moving = repeat(plan.collect[step], partial(collect, inputs), moving)
        for i, phase in enumerate(chunk.algorithm.phases()):
            moving = repeat(plan.begin[step, i], partial(prepare, phase, inputs), moving)
            moving = repeat(plan.updates[step, i], partial(update, phase), moving)
            moving = repeat(plan.end[step, i], partial(conclude, phase, inputs), moving)
        return moving

    moved: LearnerState = eqx.combine(jax.lax.fori_loop(0, plan.rows, one, moving), fixed)
    return moved


def _side_by_side(inputs: RoundInputs, learner: LearnerState) -> LearnerState:
    axes = RoundInputs(STACKED, None, None, None)  # type: ignore[arg-type]
    many = eqx.filter_vmap(_rounds, in_axes=(axes, eqx.if_array(0)))
    moved: LearnerState = many(inputs, learner)
    return moved


run_rounds, run_rounds_together = _program(_rounds), _program(_side_by_side)


def first_collection_state(algorithm: Collecting, state: Any, source: Functional | None, seed: int) -> CollectionState:
    """Return the initial collection state of a learner with this seed."""
    count = algorithm.collection().num_envs
    carry = algorithm.initial_state(algorithm.policy_params(state), count)
    return initial_collection_state(source, count, fold_in(new_key(seed), 2), carry)


# The schedule of rounds: the number of updates of each phase from any position, however a run is cut into chunks.

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
            f"every phase of this algorithm has 0 updates in {IDLE_ROUNDS} consecutive rounds",
            "at least 1",
            "return more updates from Phase.updates",
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
        raise ConfigError(f"Phase.share is {share}", "a share of the run's updates in [0, 1]", "use 0.1")
    return steps if share == 1.0 else min(round(share * steps), steps - 1)


# Validation losses: the losses of the update on held-out episodes, without a step. Letters: `B` batch.

MOST_BATCHES = 64
MOST_OF_INTERACTIONS = 8  # batches of windows, each with several events: 64 take as long as about 40 updates


class Validation:
    """Mean losses over the held-out part; every call uses the same rows, therefore curves are comparable."""

    def __init__(self, stores: Mapping[str, StoredLog | StoredInteractions]) -> None:
        self.stores = stores
        windows = any(isinstance(store, StoredInteractions) for store in stores.values())
        self._most = MOST_OF_INTERACTIONS if windows else MOST_BATCHES
        self._rows: dict[int, Any] = {}

    def losses(self, algorithm: Any, state: Any) -> dict[str, float]:
        """Return `{"held_out/<loss>": mean}` for every phase of one member."""
        means = jax.device_get(self._over_phases(_mean_losses, algorithm, state))
        return {name: float(value) for name, value in means.items()}

    def names(self, algorithm: Any, state: Any) -> list[str]:
        """Return the names in `losses`, without computing them."""
        return list(self._over_phases(partial(eqx.filter_eval_shape, _mean_losses), algorithm, state))

    def _over_phases(self, means: Callable[..., dict[str, Any]], algorithm: Any, state: Any) -> dict[str, Any]:
        numbers, metrics = as_arrays(algorithm), dict[str, Any]()
        phases = algorithm.phases()
        for index, phase in enumerate(phases):
            if index not in self._rows:
                self._rows[index] = jax.tree.map(
                    self._batches, phase.samplers, is_leaf=lambda d: isinstance(d, Sampler)
                )
            prefix = "held_out/" if len(phases) == 1 else f"held_out/{phase.name}/"
            losses = means(index, numbers, state, self.stores, self._rows[index])
            metrics |= {prefix + name: value for name, value in losses.items()}
        return metrics

    def _batches(self, draw: Sampler) -> jax.Array:
        count, rows = draw.unit.rows(self.stores[draw.store])
        batches = min(-(-count // draw.size), self._most)
        size = min(draw.size, count // batches)  # no row twice, fewer than `batches` rows left out
        order = np.random.default_rng(0).permutation(count)[: batches * size].reshape(batches, size)
        return jnp.asarray(order if rows is None else np.asarray(rows)[order], jnp.int32)


@eqx.filter_jit
def _mean_losses(
    index: int, algorithm: Any, state: Any, stores: Mapping[str, StoredLog | StoredInteractions], rows: Any
) -> dict[str, jax.Array]:
    phase = algorithm.phases()[index]

    def one(rows: Any) -> dict[str, jax.Array]:
        batch = jax.tree.map(
            lambda draw, r: draw.at(stores[draw.store], r),
            phase.samplers,
            rows,
            is_leaf=lambda d: isinstance(d, Sampler),
        )
        losses: dict[str, jax.Array] = phase.losses(algorithm, state, batch, jax.random.key(0))
        return losses

    return {name: jnp.mean(values) for name, values in jax.lax.map(one, rows).items()}
