"""Rounds as one compiled program: what is to be played and learnt is an argument, so that bits do not depend on cuts.

A plan has a row a round: whether to collect first, and of each phase whether its visit begins, how many updates it
takes, and whether it ends. A round cut in the middle is a row that begins where the last one ended. Letters: `R` rows,
`P` phases.
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
from tidelog.training.engine.learner import ChunkInputs, LearnerState, Tally, watched_update
from tidelog.training.online.collection import RECORDED, Played, counted, rollout, shaped, shapes, unplayed
from tidelog.types import Spec

ROWS = 64  # rounds in one call of the program, at most
PLAYED = "collect"  # the name of what is played, among the phases' names
METRICS = ("return", "length")
RECORDING = "recorded"  # the store of what goes into a log


class RoundStep(NamedTuple):
    """What one round, or a part of it, does."""

    collect: bool
    begin: tuple[bool, ...]  # P
    updates: tuple[int, ...]  # P
    end: tuple[bool, ...]  # P

    def stages(self, phases: tuple[str, ...]) -> list[tuple[str, RoundStep]]:
        """The same, one stage at a time: collecting, then each phase that has something to do."""
        none = (False,) * len(phases)
        parts = [(PLAYED, RoundStep(True, none, (0,) * len(phases), none))] if self.collect else []
        for i, name in enumerate(phases):
            if self.updates[i]:
                begin, end = (tuple(j == i and flag for j, flag in enumerate(part)) for part in (self.begin, self.end))
                parts.append(
                    (name, RoundStep(False, begin, tuple((j == i) * n for j, n in enumerate(self.updates)), end))
                )
        return parts


class RoundPlan(NamedTuple):
    """Rows as arrays, padded to one length."""

    rows: jax.Array  # int32: how many there are
    collect: jax.Array  # [R] int32
    begin: jax.Array  # [R, P] int32
    updates: jax.Array  # [R, P] int32
    end: jax.Array  # [R, P] int32


def packed(rows: list[RoundStep], phases: int) -> RoundPlan:
    """Rows as a plan."""

    def padded(values: Any, *shape: int) -> Any:
        found = np.zeros((ROWS, *shape), np.int32)
        found[: len(rows)] = np.asarray(values, np.int32).reshape(len(rows), *shape)
        return found

    parts = ([row[i] for row in rows] for i in range(1, 4))
    return RoundPlan(np.int32(len(rows)), padded([row.collect for row in rows]), *(padded(p, phases) for p in parts))  # type: ignore[arg-type]


class RoundInputs(NamedTuple):
    """What the program reads and does not change."""

    work: ChunkInputs
    plan: RoundPlan
    source: Functional | None
    rollout: Columns | None  # what was played on the host before the first row


# Stores.


def make_stores(planned: Mapping[str, tuple[Columns, StoreSpec]]) -> dict[str, Segments]:
    """The stores of a fresh learner, empty, with room for what phases prepare."""
    return {name: empty(shapes, keep) for name, (shapes, keep) in planned.items()}


def planned_stores(
    algorithm: Collecting, state: Any, spec: Spec, recorded: bool = False
) -> dict[str, tuple[Columns, StoreSpec]]:
    """What each store is to hold, as shapes [any, T, ...], with what phases prepare among it."""
    collection = algorithm.collection()
    found_shapes = shapes(algorithm, algorithm.policy_params(state), spec, collection, recorded)
    keeps = {name: keep for name, keep in algorithm.stores(spec).items() if keep.capacity is not None}
    if recorded:
        keeps = {**keeps, RECORDING: StoreSpec(RECORDED, collection.environments)}
    known = {name: _only(found_shapes, keeps[name].columns) for name in _fed(collection, recorded)}
    for phase in algorithm.phases():
        if phase.prepare is not None:
            store = store_of(phase)
            held = _full(known[store], keeps[store].capacity or 0)
            known[store] |= jax.eval_shape(_prepared(phase, algorithm, state), held)
        if phase.into is not None:
            known[phase.into] = _only(known[store_of(phase)], keeps[phase.into].columns)
    return {name: (known[name], keep) for name, keep in keeps.items()}


def waiting(algorithm: Collecting) -> tuple[str, ...]:
    """The stores that fill from round to round and are read in an order that is known beforehand: the others stay."""
    phases = algorithm.phases()
    read = {draw.store: draw for phase in phases for draw in draws(phase)}
    filled = {phase.into for phase in phases if phase.into is not None} - {*algorithm.collection().into}
    return tuple(name for name in sorted(filled) if name in read and getattr(read[name].order, "foreseen", False))


def draws(phase: Phase) -> tuple[Sampler, ...]:
    """All draws of a phase."""
    return (phase.reads,) if isinstance(phase.reads, Sampler) else tuple(phase.reads.values())


def _prepared(phase: Phase, algorithm: Collecting, state: Any) -> Callable[[Columns], Columns]:
    prepare: Any = phase.prepare
    return lambda columns: prepare(algorithm, state, columns)[1]


def _only(columns: Columns, names: tuple[str, ...]) -> Columns:
    return {name: columns[name] for name in names if name in columns}


def _full(columns: Columns, capacity: int) -> Columns:
    return {name: jax.tree.map(lambda leaf: shaped(leaf, capacity, *leaf.shape[1:]), columns[name]) for name in columns}


def _fed(collection: Collection, recorded: bool) -> tuple[str, ...]:
    return (*collection.into, *((RECORDING,) if recorded else ()))


def _fed_of(learner: LearnerState, algorithm: Collecting) -> tuple[str, ...]:
    return _fed(algorithm.collection(), RECORDING in learner.segments)


def store_of(phase: Phase) -> str:
    """The store that a phase prepares, and concludes over."""
    if phase.over is not None:
        return phase.over
    if not isinstance(phase.reads, Sampler):
        raise TypeError(f"phase '{phase.name}' reads several stores: it has to name the one that it prepares")
    return phase.reads.store


def extra_metrics(
    algorithm: Collecting, state: Any, planned: Mapping[str, tuple[Columns, StoreSpec]]
) -> dict[str, tuple[str, ...]]:
    """The metrics of what is played, and of phases that conclude."""
    found: dict[str, tuple[str, ...]] = {PLAYED: METRICS}
    for phase in algorithm.phases():
        if phase.conclude is not None:
            shapes, keep = planned[store_of(phase)]
            columns = _full(shapes, keep.capacity or 0)
            told = jax.eval_shape(lambda c, p=phase: p.conclude(algorithm, state, c), columns)
            found[after_name(phase)] = tuple(told)
    return found


def after_name(phase: Phase) -> str:
    """The name of what a phase tells when it is over, among the phases' names."""
    return f"after {phase.name}"


# The program.


def collect(errand: RoundInputs, learner: LearnerState) -> LearnerState:
    """Play, or take what the host has played; put it into the stores and count the episodes that ended."""
    algorithm, played = errand.work.algorithm, learner.played
    columns = errand.rollout or {}
    if errand.source is not None:
        key = played_key(learner.key, played.rounds)
        params, asked = algorithm.policy_params(learner.state), algorithm.collection()
        names = frozenset().union(*(learner.segments[name].columns for name in _fed_of(learner, algorithm)))
        played, columns = rollout(errand.source, algorithm, params, played, key, asked.steps, names, asked.pieces)
    played, sums, episodes = counted(played, columns)
    fed = {name: added(learner.segments[name], columns) for name in _fed_of(learner, algorithm)}
    segments = learner.segments | fed
    return _tallied(learner._replace(segments=segments, played=played), PLAYED, sums, episodes)


def played_key(key: jax.Array, round: jax.Array | int) -> jax.Array:
    """What the decisions of a round are drawn from; apart from the keys of updates."""
    return jax.random.fold_in(jax.random.fold_in(key, 2**31 - 2), round)


def prepare(phase: Phase, errand: RoundInputs, learner: LearnerState) -> LearnerState:
    """What a phase makes of its store before a visit."""
    if phase.prepare is None:
        return learner
    name = store_of(phase)
    store = learner.segments[name]
    state, columns = phase.prepare(errand.work.algorithm, learner.state, looked_at(store))
    ready = store._replace(columns=store.columns | columns)
    return learner._replace(state=state, segments=learner.segments | {name: ready})


def conclude(phase: Phase, errand: RoundInputs, learner: LearnerState) -> LearnerState:
    """What a phase says of its store after a visit, and where its segments go."""
    if phase.conclude is None and phase.into is None and not phase.empties:
        return learner
    name = store_of(phase)
    store = learner.segments[name]
    if phase.conclude is not None:
        columns = looked_at(store)
        told = phase.conclude(errand.work.algorithm, learner.state, columns)
        learner = concluded(phase, learner, told, columns["valid"])
    segments = dict(learner.segments)
    if phase.into in segments:
        segments[phase.into] = added(segments[phase.into], store.columns)
    if phase.empties:
        segments[name] = segments[name]._replace(filled=jnp.int32(0))
    return learner._replace(segments=segments)


def concluded(phase: Phase, learner: LearnerState, told: dict[str, jax.Array], valid: jax.Array) -> LearnerState:
    """The learner with what a phase said of every step [C, T] of its store, of which some count."""
    means = {name: jnp.mean(values, where=valid) for name, values in told.items()}
    return _tallied(learner, after_name(phase), means, jnp.int32(1))


def _tallied(learner: LearnerState, name: str, sums: dict[str, jax.Array], count: jax.Array) -> LearnerState:
    before = learner.tallies[name]
    now = Tally({metric: before.sums[metric] + value for metric, value in sums.items()}, before.updates + count)
    return learner._replace(tallies={**learner.tallies, name: now})


def _rounds(errand: RoundInputs, learner: LearnerState) -> LearnerState:
    work, plan = errand.work, errand.plan
    moving, fixed = eqx.partition(learner, eqx.is_array)

    def repeat(count: jax.Array, function: Callable[[LearnerState], LearnerState], moving: Any) -> Any:
        return repeated(count, function, moving, fixed)

    def one(row: jax.Array, moving: Any) -> Any:
        moving = repeat(plan.collect[row], partial(collect, errand), moving)
        for i, phase in enumerate(work.algorithm.phases()):
            if work.ahead is None and not is_here(phase, {**work.stores, **learner.segments}):
                continue
            moving = repeat(plan.begin[row, i], partial(prepare, phase, errand), moving)
            moving = repeat(plan.updates[row, i], partial(watched_update, work, phase), moving)
            moving = repeat(plan.end[row, i], partial(conclude, phase, errand), moving)
        return moving

    moved: LearnerState = eqx.combine(jax.lax.fori_loop(0, plan.rows, one, moving), fixed)
    return moved


def is_here(phase: Phase, stores: Mapping[str, Any]) -> bool:
    """Whether these are all the stores that a phase draws from."""
    return all(draw.store in stores for draw in draws(phase))


def repeated(count: jax.Array, function: Callable[[LearnerState], LearnerState], moving: Any, fixed: Any) -> Any:
    """`function` so many times, in place; without the barrier XLA would do its work ahead, even for 0 times."""

    def body(time: jax.Array, moving: Any) -> Any:
        moving, _ = jax.lax.optimization_barrier((moving, time))  # type: ignore[no-untyped-call]
        return eqx.filter(function(eqx.combine(moving, fixed)), eqx.is_array)

    return jax.lax.fori_loop(0, count, body, moving)


def _alone(errand: RoundInputs, learner: LearnerState) -> LearnerState:
    return _rounds(errand, learner)


def _side_by_side(errand: RoundInputs, learner: LearnerState) -> LearnerState:
    axes = RoundInputs(ChunkInputs(eqx.if_array(0), None, None, None, None), None, None, None)  # type: ignore[arg-type]
    many = eqx.filter_vmap(_rounds, in_axes=(axes, eqx.if_array(0)))
    moved: LearnerState = many(errand, learner)
    return moved


run_rounds = eqx.filter_jit(_alone, donate="all-except-first")
run_rounds_together = eqx.filter_jit(_side_by_side, donate="all-except-first")


def played_at_first(algorithm: Collecting, state: Any, source: Functional | None, seed: int) -> Played:
    """Where a learner with this seed begins in its environment."""
    count = algorithm.collection().environments
    carry = algorithm.start(algorithm.policy_params(state), count)
    return unplayed(source, count, jax.random.fold_in(jax.random.key(seed), 2), carry)
