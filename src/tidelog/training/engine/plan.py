"""Rounds as one compiled program; the plan is an argument, therefore the bits do not depend on chunk boundaries.

A plan has one round step per round: whether to collect first, and for each phase whether it begins, its number of
updates, and whether it ends. If a round is cut in the middle, the next round step begins where the last one ended.
Letters: `R` round steps, `P` phases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.contract import Collecting, Collection, Phase, StoreSpec
from tidelog.algorithms.core.sampling import Sampler
from tidelog.algorithms.core.segments import Columns, Segments, added, empty, looked_at
from tidelog.envs.functional import Functional
from tidelog.networks.keys import fold_in, new_key
from tidelog.training.engine.learner import ChunkInputs, LearnerState, Tally, checked_update
from tidelog.training.online.collection import (
    RECORDED,
    CollectionState,
    count_episodes,
    initial_collection_state,
    rollout,
    shape_of,
    shapes,
)
from tidelog.types import Spec

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

    def stages(self, phases: tuple[str, ...]) -> list[tuple[str, RoundStep]]:
        """Split the round step into stages: collection, then each phase that has updates."""
        none = (False,) * len(phases)
        parts = [(COLLECT, RoundStep(True, none, (0,) * len(phases), none))] if self.collect else []
        for i, name in enumerate(phases):
            if self.updates[i]:
                begin, end = (tuple(j == i and flag for j, flag in enumerate(part)) for part in (self.begin, self.end))
                parts.append(
                    (name, RoundStep(False, begin, tuple((j == i) * n for j, n in enumerate(self.updates)), end))
                )
        return parts


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


def make_stores(planned: Mapping[str, tuple[Columns, StoreSpec]]) -> dict[str, Segments]:
    """Create the empty stores of a fresh learner, including the columns that phases prepare."""
    return {name: empty(shapes, store_spec) for name, (shapes, store_spec) in planned.items()}


def planned_stores(
    algorithm: Collecting, state: Any, spec: Spec, recorded: bool = False
) -> dict[str, tuple[Columns, StoreSpec]]:
    """Return the column shapes [any, T, ...] and the spec of each store, including the columns that phases prepare."""
    collection = algorithm.collection()
    rollout_shapes = shapes(algorithm, algorithm.policy_params(state), spec, collection, recorded)
    specs = {name: one for name, one in algorithm.stores(spec).items() if one.capacity is not None}
    if recorded:
        specs = {**specs, RECORDED_STORE: StoreSpec(RECORDED, collection.environments)}
    columns = {name: _select(rollout_shapes, specs[name].columns) for name in _stores_of_rollouts(collection, recorded)}
    for phase in algorithm.phases():
        if phase.prepare is not None:
            store = store_of(phase)
            full = _full(columns[store], specs[store].capacity or 0)
            columns[store] |= jax.eval_shape(_prepare_columns(phase, algorithm, state), full)
        if phase.into is not None:
            columns[phase.into] = _select(columns[store_of(phase)], specs[phase.into].columns)
    return {name: (columns[name], one) for name, one in specs.items()}


def samplers_of(phase: Phase) -> tuple[Sampler, ...]:
    """Return all samplers of a phase."""
    return (phase.samplers,) if isinstance(phase.samplers, Sampler) else tuple(phase.samplers.values())


def _prepare_columns(phase: Phase, algorithm: Collecting, state: Any) -> Callable[[Columns], Columns]:
    prepare: Any = phase.prepare
    return lambda columns: prepare(algorithm, state, columns)[1]


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
    columns = inputs.rollout or {}
    if inputs.source is not None:
        key = collection_key(learner.key, collection_state.rounds)
        params, collection = algorithm.policy_params(learner.state), algorithm.collection()
        names = frozenset().union(*(learner.segments[name].columns for name in _stores_of_learner(learner, algorithm)))
        collection_state, columns = rollout(
            inputs.source, algorithm, params, collection_state, key, collection.steps, names, collection.pieces
        )
    collection_state, sums, episodes = count_episodes(collection_state, columns)
    stores = {name: added(learner.segments[name], columns) for name in _stores_of_learner(learner, algorithm)}
    segments = learner.segments | stores
    return _add_to_tally(
        learner._replace(segments=segments, collection_state=collection_state), COLLECT, sums, episodes
    )


def collection_key(key: jax.Array, round: jax.Array | int) -> jax.Array:
    """Return the key of the decisions of a round; it differs from all keys of updates."""
    return jax.random.fold_in(jax.random.fold_in(key, 2**31 - 2), round)


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
        learner = add_concluded_metrics(phase, learner, metrics, columns["valid"])
    segments = dict(learner.segments)
    if phase.into in segments:
        segments[phase.into] = added(segments[phase.into], store.columns)
    if phase.empties:
        segments[name] = segments[name]._replace(filled=jnp.int32(0))
    return learner._replace(segments=segments)


def add_concluded_metrics(
    phase: Phase, learner: LearnerState, metrics: dict[str, jax.Array], valid: jax.Array
) -> LearnerState:
    """Add the metrics [C, T] of `conclude` to the learner's tally, as means over the valid steps [C, T]."""
    means = {name: jnp.mean(values, where=valid) for name, values in metrics.items()}
    return _add_to_tally(learner, after_name(phase), means, jnp.int32(1))


def _add_to_tally(learner: LearnerState, name: str, sums: dict[str, jax.Array], count: jax.Array) -> LearnerState:
    before = learner.tallies[name]
    now = Tally({metric: before.sums[metric] + value for metric, value in sums.items()}, before.updates + count)
    return learner._replace(tallies={**learner.tallies, name: now})


def _rounds(inputs: RoundInputs, learner: LearnerState) -> LearnerState:
    chunk, plan = inputs.chunk, inputs.plan
    moving, fixed = eqx.partition(learner, eqx.is_array)

    def repeat(count: jax.Array, function: Callable[[LearnerState], LearnerState], moving: Any) -> Any:
        return repeat_in_place(count, function, moving, fixed)

    def one(step: jax.Array, moving: Any) -> Any:
        moving = repeat(plan.collect[step], partial(collect, inputs), moving)
        for i, phase in enumerate(chunk.algorithm.phases()):
            if chunk.ahead is None and not is_here(phase, {**chunk.stores, **learner.segments}):
                continue
            moving = repeat(plan.begin[step, i], partial(prepare, phase, inputs), moving)
            moving = repeat(plan.updates[step, i], partial(checked_update, chunk, phase), moving)
            moving = repeat(plan.end[step, i], partial(conclude, phase, inputs), moving)
        return moving

    moved: LearnerState = eqx.combine(jax.lax.fori_loop(0, plan.rows, one, moving), fixed)
    return moved


def is_here(phase: Phase, stores: Mapping[str, Any]) -> bool:
    """Return whether these stores include all stores that a phase draws from."""
    return all(draw.store in stores for draw in samplers_of(phase))


def repeat_in_place(count: jax.Array, function: Callable[[LearnerState], LearnerState], moving: Any, fixed: Any) -> Any:
    """Apply `function` `count` times, in place; without the barrier XLA hoists its work, even for 0 times."""

    def body(time: jax.Array, moving: Any) -> Any:
        moving, _ = jax.lax.optimization_barrier((moving, time))  # type: ignore[no-untyped-call]
        return eqx.filter(function(eqx.combine(moving, fixed)), eqx.is_array)

    return jax.lax.fori_loop(0, count, body, moving)


def _alone(inputs: RoundInputs, learner: LearnerState) -> LearnerState:
    return _rounds(inputs, learner)


def _side_by_side(inputs: RoundInputs, learner: LearnerState) -> LearnerState:
    axes = RoundInputs(ChunkInputs(eqx.if_array(0), None, None, None, None), None, None, None)  # type: ignore[arg-type]
    many = eqx.filter_vmap(_rounds, in_axes=(axes, eqx.if_array(0)))
    moved: LearnerState = many(inputs, learner)
    return moved


run_rounds = eqx.filter_jit(_alone, donate="all-except-first")
run_rounds_together = eqx.filter_jit(_side_by_side, donate="all-except-first")


def first_collection_state(algorithm: Collecting, state: Any, source: Functional | None, seed: int) -> CollectionState:
    """Return the initial collection state of a learner with this seed."""
    count = algorithm.collection().environments
    carry = algorithm.start(algorithm.policy_params(state), count)
    return initial_collection_state(source, count, fold_in(new_key(seed), 2), carry)
