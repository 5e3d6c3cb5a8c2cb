"""One learner and the compiled loop that moves it: sampling, steps, priorities and tallies in one program.

The number of updates is an argument, so that one compilation serves every chunk, and the bits do not depend on how a
run is cut into chunks. Letters: `S` members side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.contract import Algorithm, Phase
from tidelog.algorithms.draws import Draw, Stored

Stores = dict[str, Stored]
MetricNames = dict[str, tuple[str, ...]]  # by phase


class Tally(NamedTuple):
    """Sums of a phase's metrics since the last report."""

    sums: dict[str, jax.Array]
    updates: jax.Array  # int32


class Learner(NamedTuple):
    """All that changes while one member trains, and all that its checkpoint holds."""

    state: Any
    orders: dict[str, Any]  # a phase's name -> the state of its draws' orders, structured as its `reads`
    tallies: dict[str, Tally]
    key: jax.Array  # for sampling
    update: jax.Array  # int32: updates taken, over all phases
    failed: jax.Array  # int32: the first update with a metric that was not finite, or -1


def create_learner(algorithm: Algorithm, state: Any, stores: Stores, seed: int, metrics: MetricNames) -> Learner:
    """A learner at update 0 whose samples depend on the seed alone."""
    tallies = {phase: Tally({name: jnp.zeros(()) for name in names}, jnp.int32(0)) for phase, names in metrics.items()}
    key = jax.random.fold_in(jax.random.key(seed), 1)
    return Learner(state, _orders(algorithm, stores), tallies, key, jnp.int32(0), jnp.int32(-1))


def metric_names(algorithm: Algorithm, state: Any, stores: Stores) -> MetricNames:
    """The metrics of each phase, found by tracing one step."""
    orders = _orders(algorithm, stores)

    def trace(phase: Phase) -> dict[str, jax.Array]:
        batch, _ = _draw(phase, stores, orders[phase.name], jax.random.key(0), jnp.zeros(()))
        return phase.step(algorithm, state, batch)[1].metrics

    return {phase.name: tuple(jax.eval_shape(lambda p=phase: trace(p))) for phase in algorithm.phases()}


def _orders(algorithm: Algorithm, stores: Stores) -> dict[str, Any]:
    return {
        phase.name: jax.tree.map(lambda d: _order_state(d, stores), phase.reads, is_leaf=_is_draw)
        for phase in algorithm.phases()
    }


def _is_draw(value: Any) -> bool:
    return isinstance(value, Draw)


def _order_state(draw: Draw, stores: Stores) -> Any:
    return draw.order.init(draw.unit.rows(stores[draw.store])[0])


def _draw(phase: Phase, stores: Stores, orders: Any, key: jax.Array, progress: jax.Array) -> tuple[Any, Any]:
    if isinstance(phase.reads, Draw):
        return phase.reads.batch(stores[phase.reads.store], orders, key, progress)
    drawn = {
        name: draw.batch(stores[draw.store], orders[name], jax.random.fold_in(key, i), progress)
        for i, (name, draw) in enumerate(sorted(phase.reads.items()))
    }
    return {name: batch for name, (batch, _) in drawn.items()}, {name: rows for name, (_, rows) in drawn.items()}


def _taught(phase: Phase, orders: Any, indices: Any, priority: Any) -> Any:
    if isinstance(phase.reads, Draw):
        return phase.reads.order.learn(orders, indices, priority)
    priority = priority or {}
    return {
        name: draw.order.learn(orders[name], indices[name], priority.get(name)) for name, draw in phase.reads.items()
    }


def one_update(work: Work, phase: Phase, learner: Learner) -> Learner:
    """Draw, step, hand the priorities back, and add up the metrics."""
    key = jax.random.fold_in(learner.key, learner.update)
    progress = learner.update / jnp.maximum(work.steps, 1)
    batch, indices = _draw(phase, work.stores, learner.orders[phase.name], key, progress)
    state, feedback = phase.step(work.algorithm, learner.state, batch)
    orders = _taught(phase, learner.orders[phase.name], indices, feedback.priority)
    tally = learner.tallies[phase.name]
    sums = {name: tally.sums[name] + value for name, value in feedback.metrics.items()}
    finite = jnp.isfinite(sum(feedback.metrics.values(), start=jnp.zeros(())))
    failed = jnp.where((learner.failed < 0) & ~finite, learner.update, learner.failed)
    return Learner(
        state,
        {**learner.orders, phase.name: orders},
        {**learner.tallies, phase.name: Tally(sums, tally.updates + 1)},
        learner.key,
        learner.update + 1,
        failed,
    )


class Work(NamedTuple):
    """What a chunk reads and does not change."""

    algorithm: Any  # number leaves as arrays
    stores: Stores
    updates: jax.Array  # int32: how many to take
    steps: jax.Array  # int32: how many the run takes in all


def _advance(phase_index: int, work: Work, learner: Learner) -> Learner:
    phase = work.algorithm.phases()[phase_index]
    moving, fixed = eqx.partition(learner, eqx.is_array)

    def body(_: Any, moving: Any) -> Any:
        moved = one_update(work, phase, eqx.combine(moving, fixed))
        return eqx.filter(moved, eqx.is_array)

    moved: Learner = eqx.combine(jax.lax.fori_loop(0, work.updates, body, moving), fixed)
    return moved


def advance(phase_index: int) -> Callable[[Work, Learner], Learner]:
    """The compiled chunk of a phase for one learner, whose buffers it takes over."""
    return _jitted(phase_index, False)


def advance_together(phase_index: int) -> Callable[[Work, Learner], Learner]:
    """The compiled chunk for `S` learners stacked along a leading axis, algorithms stacked likewise."""
    return _jitted(phase_index, True)


_programs: dict[tuple[int, bool], Callable[[Work, Learner], Learner]] = {}


def _jitted(phase_index: int, together: bool) -> Callable[[Work, Learner], Learner]:
    if (phase_index, together) not in _programs:

        def chunk(work: Work, learner: Learner) -> Learner:
            if not together:
                return _advance(phase_index, work, learner)
            axes = Work(eqx.if_array(0), None, None, None)  # type: ignore[arg-type]
            many = eqx.filter_vmap(
                lambda one_work, one: _advance(phase_index, one_work, one), in_axes=(axes, eqx.if_array(0))
            )
            moved: Learner = many(work, learner)
            return moved

        _programs[phase_index, together] = eqx.filter_jit(chunk, donate="all-except-first")
    return _programs[phase_index, together]


def as_arrays(algorithm: Any) -> Any:
    """The algorithm with its numbers as float32 scalars, so that another number is no other program."""
    return jax.tree.map(jnp.float32, algorithm)


def without_tallies(learner: Learner) -> Learner:
    """The learner with its metrics' sums set to zero."""
    return learner._replace(tallies=jax.tree.map(jnp.zeros_like, learner.tallies))


def report(learner: Learner) -> dict[str, float]:
    """Mean of every metric since the tallies were last set to zero; phases that took no update are left out."""
    rows: dict[str, float] = {}
    for name, tally in jax.device_get(learner.tallies).items():
        for metric, total in tally.sums.items() if tally.updates else ():
            rows[_label(learner, name, metric)] = float(total) / int(tally.updates)
    return rows


def reported(learner: Learner) -> list[str]:
    """The names of the metrics that reports of this learner hold."""
    return [_label(learner, name, metric) for name, tally in learner.tallies.items() for metric in tally.sums]


def _label(learner: Learner, phase: str, metric: str) -> str:
    return metric if len(learner.tallies) == 1 else f"{phase}/{metric}"


def stack(learners: list[Any]) -> Any:
    """Pytrees of one structure, their arrays stacked along a new leading axis `S`."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *learners)


def unstack(stacked: Any, index: int) -> Any:
    """Member `index` of a stacked pytree."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, stacked)
