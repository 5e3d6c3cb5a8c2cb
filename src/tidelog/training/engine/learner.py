"""One learner and its compiled update loop: sampling, steps, priorities and tallies in one program.

The number of updates is an argument: one compilation serves every chunk, and the bits do not depend on chunk
boundaries. Letters: `S` members side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tidelog.algorithms.core.contract import Algorithm, Feedback, Phase
from tidelog.algorithms.core.sampling import Sampler, Samples, Stored
from tidelog.algorithms.core.segments import Segments, drawn
from tidelog.networks.arrays import float32, scalar, zeros
from tidelog.networks.keys import fold_in, new_key
from tidelog.networks.product import rounded
from tidelog.recommend.next_item import StoredInteractions
from tidelog.training.engine.log_streaming import Stream

Stores = Mapping[str, Stored | Stream | Segments | StoredInteractions]
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
    tallies = {phase: empty_tally(names) for phase, names in metrics.items()}
    key = fold_in(new_key(seed), 1)
    orders = _orders(algorithm, {**stores, **(segments or {})}, fold_in(key, FIRST_ORDERS))
    return LearnerState(state, orders, tallies, key, scalar(0), scalar(-1), segments or {}, collection_state)


def empty_tally(names: Iterable[str]) -> Tally:
    """Return the empty tally of these metrics."""
    return Tally({name: zeros() for name in names}, scalar(0))


def metric_names(algorithm: Algorithm, state: Any, stores: Stores) -> MetricNames:
    """Return the metric names of each phase, found by tracing one step."""

    def example_batch(draw: Sampler) -> Any:
        store = stores[draw.store]
        return draw.batch(store.example(draw) if isinstance(store, Stream) else store, *_first(draw, store))[0]

    def names(number: int, phase: Phase) -> tuple[str, ...]:
        batch = jax.eval_shape(lambda: _each(phase, example_batch))
        return tuple(eqx.filter_eval_shape(_step, number, algorithm, state, batch)[1].metrics)

    return {phase.name: names(number, phase) for number, phase in enumerate(algorithm.phases())}


def _step_of(number: int, algorithm: Algorithm, state: Any, batch: Any) -> tuple[Any, Feedback]:
    """Do one step of a phase, with the algorithm's `products` where it has them."""
    with rounded(getattr(algorithm, "products", "float32")):
        return algorithm.phases()[number].step(algorithm, state, batch)


# traced once in a process for equal settings and shapes, and part of every program; `inline` is jax.jit's
_step: Callable[[int, Algorithm, Any, Any], tuple[Any, Feedback]] = eqx.filter_jit(_step_of, inline=True)  # type: ignore[call-overload]


def _first(draw: Sampler, store: Any) -> tuple[Any, jax.Array, jax.Array]:
    samples = count(draw, store) if isinstance(store, Segments) else 1
    return draw.order.init(samples, jax.random.key(0)), jax.random.key(0), jnp.zeros(())


def count(draw: Sampler, store: Any) -> int:
    """Return the number of samples that a sampler draws from."""
    return store.count(draw.unit) if isinstance(store, Stream) else draw.unit.rows(store)[0]


def _orders(algorithm: Algorithm, stores: Stores, key: jax.Array) -> dict[str, Any]:
    def of(phase: Phase, key: jax.Array) -> Any:
        return _each(phase, lambda draw, k: draw.order.init(count(draw, stores[draw.store]), k), _keys(phase, key))

    return {phase.name: of(phase, fold_in(key, i)) for i, phase in enumerate(algorithm.phases())}


def _each(phase: Phase, function: Callable[..., Any], *trees: Any) -> Any:
    """Apply a function to each sampler of a phase and its part of other trees, in the structure of `samplers`."""
    return jax.tree.map(function, phase.samplers, *trees, is_leaf=lambda value: isinstance(value, Sampler))


def _split(phase: Phase, pairs: Any) -> tuple[Any, Any]:
    return _each(phase, lambda _, pair: pair[0], pairs), _each(phase, lambda _, pair: pair[1], pairs)


def _keys(phase: Phase, key: jax.Array) -> Any:
    if isinstance(phase.samplers, Sampler):
        return key
    return {name: fold_in(key, i) for i, name in enumerate(sorted(phase.samplers))}


class Ready(NamedTuple):
    """The samples of a block of `K` updates, fetched before the block begins."""

    store: Stored | Segments
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
    ahead: Any = (
        None  # a Ready for each sampler of `samplers` whose store is not in `stores`; None: all are in `stores`
    )
    begin: jax.Array | None = None  # int32: the update at which these samples begin
    mesh: Mesh | None = None  # the devices that share the batches; None: one device


def _draw(inputs: ChunkInputs, phase: Phase, learner: LearnerState) -> tuple[Any, Any]:
    stores: Any = {**inputs.stores, **learner.segments}
    keys, progress = _keys_and_progress(phase, learner, learner.update, inputs.steps)

    def one(draw: Sampler, order: Any, key: jax.Array, ready: Ready | None) -> Any:
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
    """Return a Ready for each sampler of a phase: the samples of the next `block` updates, fetched from their store.

    None for a sampler whose store is not in `stores`: the update itself draws from it.
    """
    phase = algorithm.phases()[phase_index]
    counts = _each(phase, lambda draw: jnp.int32(count(draw, stores[draw.store])) if draw.store in stores else None)
    samples = draw_ahead(phase_index, algorithm, learner, steps, counts, block)
    return _each(phase, lambda draw, drawn: drawn and _fetched(draw, stores[draw.store], drawn), samples)


def _fetched(draw: Sampler, store: Any, samples: Samples) -> Ready:
    indices, importance, offset = samples
    if isinstance(store, Stored):
        rows = draw.unit.rows(store)[1]
        return Ready(store, indices if rows is None else rows[indices], indices, importance, offset)
    around = () if offset is None else (np.asarray(offset).reshape(-1),)
    small, slots = store.fetch(store.rows(draw.unit, np.asarray(indices).reshape(-1)), draw.unit, *around)
    return Ready(small, jnp.asarray(slots.reshape(indices.shape)), indices, importance, offset)


def _learn_priorities(phase: Phase, orders: Any, indices: Any, priority: Any) -> Any:
    if not isinstance(phase.samplers, Sampler):
        priority = {name: (priority or {}).get(name) for name in phase.samplers}
    return _each(phase, lambda draw, order, rows, p: draw.order.learn(order, rows, p), orders, indices, priority)


def _count_uses(phase: Phase, segments: dict[str, Segments], indices: Any) -> dict[str, Segments]:
    """Return the segment stores after an update; if a sampler's order counts uses, its draws are counted."""
    stores = dict(segments)
    samplers = phase.samplers
    pairs = (
        [(samplers, indices)]
        if isinstance(samplers, Sampler)
        else [(draw, indices[name]) for name, draw in samplers.items()]
    )
    for draw, rows in pairs:
        if getattr(draw.order, "uses_up", False):
            stores[draw.store] = drawn(stores[draw.store], rows)
    return stores


def one_update(inputs: ChunkInputs, phase: Phase, learner: LearnerState) -> LearnerState:
    """Draw a batch, take a step, return the priorities to the samplers, and add the metrics to the tally."""
    batch, indices = _draw(inputs, phase, learner)
    number = [one.name for one in inputs.algorithm.phases()].index(phase.name)
    mesh = inputs.mesh  # networks see the devices that share the batch
    with nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        state, feedback = _step(number, inputs.algorithm, learner.state, batch)
    indices, priority = _constrained((indices, feedback.priority), inputs.mesh)  # each device learns all priorities
    orders = _learn_priorities(phase, learner.orders[phase.name], indices, priority)
    tally = learner.tallies[phase.name]
    sums = {name: tally.sums[name] + value for name, value in feedback.metrics.items()}
    moved = learner._replace(
        state=state,
        orders={**learner.orders, phase.name: orders},
        tallies={**learner.tallies, phase.name: Tally(sums, tally.updates + 1)},
        update=learner.update + 1,
        segments=_count_uses(phase, learner.segments, indices),
    )
    return _constrained(moved, inputs.mesh)


def checked_update(inputs: ChunkInputs, phase: Phase, learner: LearnerState) -> LearnerState:
    """Take one update, and check that the sums of metrics are finite."""
    return _mark_failure(phase, one_update(inputs, phase, learner), learner.update)


def _advance(phase_index: int, inputs: ChunkInputs, learner: LearnerState) -> LearnerState:
    """Take `inputs.updates` updates, and check once per block that the sums of metrics are finite.

    A check in every update took 15% of the time of discrete BCQ on CPU. Blocks end at fixed updates, independent of
    the chunk. Samples drawn for a whole block at once leave 143 kernels of 172 in discrete BCQ's update, in
    the same time: 1.01 times the processor seconds at batch 64, 1.00 at 256, 0.99 for IQL (13 pairs on one core).
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


def advance(phase_index: int) -> Callable[[ChunkInputs, LearnerState], LearnerState]:
    """Return the compiled chunk of a phase for one learner; it donates the learner's buffers."""
    return _jitted(phase_index, False)


def advance_together(phase_index: int) -> Callable[[ChunkInputs, LearnerState], LearnerState]:
    """Return the compiled chunk for `S` learners and algorithms, both stacked along a leading axis."""
    return _jitted(phase_index, True)


_programs: dict[tuple[int, bool], Callable[[ChunkInputs, LearnerState], LearnerState]] = {}


def _jitted(phase_index: int, together: bool) -> Callable[[ChunkInputs, LearnerState], LearnerState]:
    if (phase_index, together) not in _programs:

        def chunk(inputs: ChunkInputs, learner: LearnerState) -> LearnerState:
            if not together:
                return _advance(phase_index, inputs, learner)
            axes = ChunkInputs(eqx.if_array(0), None, None, None, None)  # type: ignore[arg-type]
            many = eqx.filter_vmap(
                lambda one_inputs, one: _advance(phase_index, one_inputs, one), in_axes=(axes, eqx.if_array(0))
            )
            moved: LearnerState = many(inputs, learner)
            return moved

        _programs[phase_index, together] = eqx.filter_jit(chunk, donate="all-except-first")
    return _programs[phase_index, together]


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
