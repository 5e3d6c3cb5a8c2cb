"""One learner and the compiled loop that moves it: sampling, steps, priorities and tallies in one program.

The number of updates is an argument, so that one compilation serves every chunk, and the bits do not depend on how a
run is cut into chunks. Letters: `S` members side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.contract import Algorithm, Phase
from tidelog.algorithms.core.sampling import Sampler, Samples, Stored
from tidelog.algorithms.core.segments import Segments, drawn
from tidelog.recommend.windows import StoredInteractions
from tidelog.training.engine.log_streaming import Stream
from tidelog.training.engine.segment_offload import OffloadedStore

Stores = Mapping[str, Stored | Stream | Segments | StoredInteractions | OffloadedStore]
MetricNames = dict[str, tuple[str, ...]]  # by phase
BLOCK = 16  # updates between two looks at whether metrics are finite; the first ones are looked at one by one
FIRST_ORDERS = 2**31 - 1  # no update has this number: what orders begin with, apart from what updates draw


class Tally(NamedTuple):
    """Sums of a phase's metrics since the last report."""

    sums: dict[str, jax.Array]
    updates: jax.Array  # int32


class LearnerState(NamedTuple):
    """All that changes while one member trains, and all that its checkpoint holds."""

    state: Any
    orders: dict[str, Any]  # a phase's name -> the state of its draws' orders, structured as its `reads`
    tallies: dict[str, Tally]
    key: jax.Array  # for sampling
    update: jax.Array  # int32: updates taken, over all phases
    failed: jax.Array  # int32: the first update (or the first of its block) with a metric not finite, or -1
    segments: dict[str, Segments] = {}  # noqa: RUF012 - stores of its own, where it learns in an environment
    played: Any = None  # and where it stands there


def create_learner(
    algorithm: Algorithm,
    state: Any,
    stores: Stores,
    seed: int,
    metrics: MetricNames,
    segments: dict[str, Segments] | None = None,
    played: Any = None,
) -> LearnerState:
    """A learner at update 0 whose samples depend on the seed alone."""
    tallies = {phase: no_tally(names) for phase, names in metrics.items()}
    key = jax.random.fold_in(jax.random.key(seed), 1)
    orders = _orders(algorithm, {**stores, **(segments or {})}, jax.random.fold_in(key, FIRST_ORDERS))
    return LearnerState(state, orders, tallies, key, jnp.int32(0), jnp.int32(-1), segments or {}, played)


def no_tally(names: Iterable[str]) -> Tally:
    """Nothing added up yet of these metrics."""
    return Tally({name: jnp.zeros(()) for name in names}, jnp.int32(0))


def metric_names(algorithm: Algorithm, state: Any, stores: Stores) -> MetricNames:
    """The metrics of each phase, found by tracing one step."""

    def shown(draw: Sampler) -> Any:
        store = stores[draw.store]
        return draw.batch(
            store.example(draw) if isinstance(store, Stream | OffloadedStore) else store, *_first(draw, store)
        )[0]

    def trace(phase: Phase) -> dict[str, jax.Array]:
        return phase.step(algorithm, state, _each(phase, shown))[1].metrics

    return {phase.name: tuple(jax.eval_shape(lambda p=phase: trace(p))) for phase in algorithm.phases()}


def _first(draw: Sampler, store: Any) -> tuple[Any, jax.Array, jax.Array]:
    samples = count(draw, store) if isinstance(store, Segments | OffloadedStore) else 1
    return draw.order.init(samples, jax.random.key(0)), jax.random.key(0), jnp.zeros(())


def count(draw: Sampler, store: Any) -> int:
    """How many samples a draw has to choose from."""
    return store.count(draw.unit) if isinstance(store, Stream | OffloadedStore) else draw.unit.rows(store)[0]


def _orders(algorithm: Algorithm, stores: Stores, key: jax.Array) -> dict[str, Any]:
    def of(phase: Phase, key: jax.Array) -> Any:
        return _each(phase, lambda draw, k: draw.order.init(count(draw, stores[draw.store]), k), _keys(phase, key))

    return {phase.name: of(phase, jax.random.fold_in(key, i)) for i, phase in enumerate(algorithm.phases())}


def _each(phase: Phase, function: Callable[..., Any], *trees: Any) -> Any:
    """What a function makes of each draw of a phase and its part of other trees, in the structure of `reads`."""
    return jax.tree.map(function, phase.reads, *trees, is_leaf=lambda value: isinstance(value, Sampler))


def _split(phase: Phase, pairs: Any) -> tuple[Any, Any]:
    return _each(phase, lambda _, pair: pair[0], pairs), _each(phase, lambda _, pair: pair[1], pairs)


def _keys(phase: Phase, key: jax.Array) -> Any:
    if isinstance(phase.reads, Sampler):
        return key
    return {name: jax.random.fold_in(key, i) for i, name in enumerate(sorted(phase.reads))}


class Ready(NamedTuple):
    """The samples of a block of `K` updates, fetched before it begins."""

    store: Stored | Segments
    slots: jax.Array  # [K, B] int32: where they stand in that store
    indices: jax.Array  # [K, B] int32: which samples they are
    importance: jax.Array | None  # [K, B]
    offset: jax.Array | None = None  # windows only, [K, B]: where in its window each drawn row stands

    def batch(self, draw: Sampler, at: jax.Array) -> tuple[Any, jax.Array]:
        """The batch of one update of the block, and the indices that its feedback goes back to."""
        importance = None if self.importance is None else self.importance[at]
        offset = None if self.offset is None else self.offset[at]
        return draw.at(self.store, self.slots[at], importance, offset), self.indices[at]


class ChunkInputs(NamedTuple):
    """What a chunk reads and does not change."""

    algorithm: Any  # number leaves as arrays
    stores: Stores
    updates: jax.Array  # int32: how many to take
    steps: jax.Array  # int32: how many the run takes in all
    since: jax.Array  # int32: how many it has taken
    ahead: Any = None  # in the structure of `reads` a Ready for each draw that is not of `stores`; None: all are
    begin: jax.Array | None = None  # int32: the update at which they begin


def _drawn(work: ChunkInputs, phase: Phase, learner: LearnerState) -> tuple[Any, Any]:
    stores: Any = {**work.stores, **learner.segments}
    keys, progress = _moment(phase, learner, learner.update, work.steps)

    def one(draw: Sampler, order: Any, key: jax.Array, ready: Ready | None) -> Any:
        if ready is None or work.begin is None:
            return draw.batch(stores[draw.store], order, key, progress)
        return ready.batch(draw, learner.update - work.begin)

    ahead = _each(phase, lambda draw: None) if work.ahead is None else work.ahead
    return _split(phase, _each(phase, one, learner.orders[phase.name], keys, ahead))


def _moment(phase: Phase, learner: LearnerState, update: jax.Array, steps: jax.Array) -> tuple[Any, jax.Array]:
    """The keys of an update's draws, and its share of the run."""
    return _keys(phase, jax.random.fold_in(learner.key, update)), update / jnp.maximum(steps, 1)


@eqx.filter_jit
def draw_ahead(
    phase_index: int, algorithm: Any, learner: LearnerState, steps: jax.Array, counts: Any, block: int
) -> Any:
    """The samples [K, B] of the next `block` updates, as the draws would find them one by one.

    `counts` are how many samples each draw has to choose from; a draw without one is left out.
    """
    phase = algorithm.phases()[phase_index]
    orders = learner.orders[phase.name]

    def one(i: jax.Array) -> Any:
        keys, progress = _moment(phase, learner, learner.update + i, steps)
        return _each(
            phase,
            lambda draw, order, key, count: None if count is None else draw.choose(order, key, count, progress),
            orders,
            keys,
            counts,
        )

    return jax.lax.map(one, jnp.arange(block))


def fetch_ahead(
    phase_index: int, algorithm: Any, learner: LearnerState, stores: Stores, steps: jax.Array, block: int
) -> Any:
    """A Ready for each draw of a phase: the samples of the next `block` updates, fetched from where they are kept.

    None for a draw from a store that is not among `stores`: it is left to the update.
    """
    phase = algorithm.phases()[phase_index]
    counts = _each(phase, lambda draw: jnp.int32(count(draw, stores[draw.store])) if draw.store in stores else None)
    found = draw_ahead(phase_index, algorithm, learner, steps, counts, block)
    return _each(phase, lambda draw, drawn: drawn and _fetched(draw, stores[draw.store], drawn), found)


def _fetched(draw: Sampler, store: Any, samples: Samples) -> Ready:
    indices, importance, offset = samples
    if isinstance(store, Stored):
        rows = draw.unit.rows(store)[1]
        return Ready(store, indices if rows is None else rows[indices], indices, importance, offset)
    around = () if offset is None else (np.asarray(offset).reshape(-1),)
    small, slots = store.fetch(store.rows(draw.unit, np.asarray(indices).reshape(-1)), draw.unit, *around)
    return Ready(small, jnp.asarray(slots.reshape(indices.shape)), indices, importance, offset)


def _taught(phase: Phase, orders: Any, indices: Any, priority: Any) -> Any:
    if not isinstance(phase.reads, Sampler):
        priority = {name: (priority or {}).get(name) for name in phase.reads}
    return _each(phase, lambda draw, order, rows, p: draw.order.learn(order, rows, p), orders, indices, priority)


def _used(phase: Phase, segments: dict[str, Segments], indices: Any) -> dict[str, Segments]:
    """The stores of segments after an update, those it drew from used where that uses their segments up."""
    found = dict(segments)
    reads = phase.reads
    pairs = (
        [(reads, indices)] if isinstance(reads, Sampler) else [(draw, indices[name]) for name, draw in reads.items()]
    )
    for draw, rows in pairs:
        if getattr(draw.order, "uses_up", False):
            found[draw.store] = drawn(found[draw.store], rows)
    return found


def one_update(work: ChunkInputs, phase: Phase, learner: LearnerState) -> LearnerState:
    """Draw, step, hand the priorities back, and add up the metrics."""
    batch, indices = _drawn(work, phase, learner)
    state, feedback = phase.step(work.algorithm, learner.state, batch)
    orders = _taught(phase, learner.orders[phase.name], indices, feedback.priority)
    tally = learner.tallies[phase.name]
    sums = {name: tally.sums[name] + value for name, value in feedback.metrics.items()}
    return learner._replace(
        state=state,
        orders={**learner.orders, phase.name: orders},
        tallies={**learner.tallies, phase.name: Tally(sums, tally.updates + 1)},
        update=learner.update + 1,
        segments=_used(phase, learner.segments, indices),
    )


def watched_update(work: ChunkInputs, phase: Phase, learner: LearnerState) -> LearnerState:
    """One update, and a look whether the sums of metrics are still finite."""
    return _marked(phase, one_update(work, phase, learner), learner.update)


def _advance(phase_index: int, work: ChunkInputs, learner: LearnerState) -> LearnerState:
    """Take `work.updates` updates, and look once a block whether the sums of metrics are still finite.

    A look in every update took 15 % of discrete BCQ's on CPU. Blocks end at fixed updates, whatever a chunk is.
    """
    phase = work.algorithm.phases()[phase_index]
    moving, fixed = eqx.partition(learner, eqx.is_array)
    end = work.since + work.updates

    def update(_: Any, moving: Any) -> Any:
        return eqx.filter(one_update(work, phase, eqx.combine(moving, fixed)), eqx.is_array)

    def block(now: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        begin, moving = now
        size = jnp.minimum(jnp.where(begin < BLOCK, 1, BLOCK - begin % BLOCK), end - begin)
        moved: LearnerState = eqx.combine(jax.lax.fori_loop(0, size, update, moving), fixed)
        return begin + size, eqx.filter(_marked(phase, moved, begin), eqx.is_array)

    _, moving = jax.lax.while_loop(lambda now: now[0] < end, block, (work.since, moving))
    done: LearnerState = eqx.combine(moving, fixed)
    return done


def _marked(phase: Phase, learner: LearnerState, begin: jax.Array) -> LearnerState:
    """The learner with the block of update `begin` marked as its first failure, unless its sums are finite."""
    finite = jnp.isfinite(sum(learner.tallies[phase.name].sums.values(), start=jnp.zeros(())))
    first = jnp.where(begin < BLOCK, begin, begin - begin % BLOCK)
    return learner._replace(failed=jnp.where((learner.failed < 0) & ~finite, first, learner.failed))


def advance(phase_index: int) -> Callable[[ChunkInputs, LearnerState], LearnerState]:
    """The compiled chunk of a phase for one learner, whose buffers it takes over."""
    return _jitted(phase_index, False)


def advance_together(phase_index: int) -> Callable[[ChunkInputs, LearnerState], LearnerState]:
    """The compiled chunk for `S` learners stacked along a leading axis, algorithms stacked likewise."""
    return _jitted(phase_index, True)


_programs: dict[tuple[int, bool], Callable[[ChunkInputs, LearnerState], LearnerState]] = {}


def _jitted(phase_index: int, together: bool) -> Callable[[ChunkInputs, LearnerState], LearnerState]:
    if (phase_index, together) not in _programs:

        def chunk(work: ChunkInputs, learner: LearnerState) -> LearnerState:
            if not together:
                return _advance(phase_index, work, learner)
            axes = ChunkInputs(eqx.if_array(0), None, None, None, None)  # type: ignore[arg-type]
            many = eqx.filter_vmap(
                lambda one_work, one: _advance(phase_index, one_work, one), in_axes=(axes, eqx.if_array(0))
            )
            moved: LearnerState = many(work, learner)
            return moved

        _programs[phase_index, together] = eqx.filter_jit(chunk, donate="all-except-first")
    return _programs[phase_index, together]


def as_arrays(algorithm: Any) -> Any:
    """The algorithm with its numbers as float32 scalars, so that another number is no other program."""
    return jax.tree.map(jnp.float32, algorithm)


def without_tallies(learner: LearnerState) -> LearnerState:
    """The learner with its metrics' sums set to zero."""
    return learner._replace(tallies=jax.tree.map(jnp.zeros_like, learner.tallies))


def report(learner: LearnerState) -> dict[str, float]:
    """Mean of every metric since the tallies were last set to zero; phases that took no update are left out."""
    rows: dict[str, float] = {}
    for name, tally in jax.device_get(learner.tallies).items():
        for metric, total in tally.sums.items() if tally.updates else ():
            rows[_label(learner, name, metric)] = float(total) / int(tally.updates)
    return rows


def reported(learner: LearnerState) -> list[str]:
    """The names of the metrics that reports of this learner hold."""
    return [_label(learner, name, metric) for name, tally in learner.tallies.items() for metric in tally.sums]


def _label(learner: LearnerState, phase: str, metric: str) -> str:
    return metric if len(learner.tallies) == 1 else f"{phase}/{metric}"


def stack(learners: list[Any]) -> Any:
    """Pytrees of one structure, their arrays stacked along a new leading axis `S`."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *learners)


def unstack(stacked: Any, index: int) -> Any:
    """Member `index` of a stacked pytree."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, stacked)
