"""Phases over segments that lie off the device: they come over in blocks, the next one while the last is learnt from.

What is computed is what would be on the device, in the same order; only where it is read from differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.contract import Phase
from tidelog.algorithms.core.sampling import Sampler
from tidelog.algorithms.core.segments import Columns
from tidelog.training.engine.learner import ChunkInputs, LearnerState, Ready, as_arrays, watched_update
from tidelog.training.engine.offload_storage import Storage
from tidelog.training.engine.plan import RoundStep, concluded, draws, planned_stores, repeated, store_of
from tidelog.training.engine.segment_offload import OffloadedStore
from tidelog.training.online.host_rollouts import on_threads
from tidelog.types import Spec


class OffloadedPhases:
    """What all members have off the device; false where that is nothing."""

    def __init__(self, storage: Storage, players: Sequence[Any], state: Any, spec: Spec) -> None:
        """`players` differ in numbers; `state` is of the first one."""
        self._phases: tuple[Phase, ...] = players[0].phases()
        planned = planned_stores(as_arrays(players[0]), state, spec) if storage.where != "device" else {}
        self._depots = [storage.depots(player, planned, i) for i, player in enumerate(players)]
        self._away = [any(draw.store in self._depots[0] for draw in draws(phase)) for phase in self._phases]
        self._compiled = False

    def __bool__(self) -> bool:
        return any(self._away)

    def is_here(self, row: RoundStep) -> bool:
        """Whether something of a row is to be done on the device."""
        return row.collect or any(n and not away for n, away in zip(row.updates, self._away, strict=True))

    def served(
        self, row: RoundStep, round: int, work: Sequence[ChunkInputs], learners: Sequence[LearnerState]
    ) -> list[LearnerState]:
        """The learners after phases over depots, into which has gone what other phases have finished with."""

        def one(member: int) -> LearnerState:
            learner, depots = learners[member], self._depots[member]
            for i, phase in enumerate(self._phases):
                if row.end[i] and phase.into in depots:
                    depots[phase.into].add(round, learner.segments[store_of(phase)].columns)
                if self._away[i] and row.updates[i]:
                    learner = visited(i, row, work[member], learner, depots[store_of(phase)])
            return learner

        found: list[LearnerState] = on_threads(one, len(learners), self._compiled)
        self._compiled |= any(n and away for n, away in zip(row.updates, self._away, strict=True))
        return found

    def deposited(self) -> list[dict[str, list[str]]]:
        """The pieces of each member, by store, which are files from now on."""
        return [{name: depot.saved() for name, depot in depots.items()} for depots in self._depots]

    def put_back(self, deposited: Sequence[Mapping[str, list[str]]]) -> None:
        """Go on with the pieces that a checkpoint names; CheckpointError where one is not what it was."""
        for depots, names in zip(self._depots, deposited or [{}] * len(self._depots), strict=True):
            for name, depot in depots.items():
                depot.put_back(names.get(name, []))

    def keep_only(self, deposited: Sequence[Sequence[Mapping[str, list[str]]]]) -> None:
        """Forget the pieces that no checkpoint names."""
        for i, depots in enumerate(self._depots):
            for name, depot in depots.items():
                depot.keep_only({piece for one in deposited if one for piece in one[i].get(name, [])})

    def notes(self) -> list[str]:
        """How large each is, and where it lies."""
        return [note for name, depot in self._depots[0].items() for note in depot.notes(name, len(self._depots))]


def visited(
    index: int, row: RoundStep, work: ChunkInputs, learner: LearnerState, depot: OffloadedStore
) -> LearnerState:
    """The learner after a phase, or a part of it, over a depot: prepared, updated, concluded as the row says."""
    phase = work.algorithm.phases()[index]
    if row.begin[index] and phase.prepare is not None:
        depot.prepare(lambda columns: _prepared(index, work.algorithm, learner.state, columns))
    learner = _updated(index, row.updates[index], work, learner, depot)
    if row.end[index]:
        if phase.conclude is not None:
            told, valid = depot.conclude(lambda columns: _told(index, work.algorithm, learner.state, columns))
            learner = _concluded(index, work.algorithm, learner, told, valid)
        if phase.empties:
            depot.clear()
    return learner


def _updated(index: int, updates: int, work: ChunkInputs, learner: LearnerState, depot: OffloadedStore) -> LearnerState:
    phase = work.algorithm.phases()[index]
    draw, order = cast(Sampler, phase.reads), learner.orders[phase.name]
    count = depot.count(draw.unit)
    block = min(depot.block(draw), max(1, count // draw.size))
    with ThreadPoolExecutor(1) as ahead:

        def next_block(order: Any) -> tuple[Any, Future[Ready]]:
            order, indices = _foreseen(index, work.algorithm, order, count, block)
            return order, ahead.submit(_fetched, draw, depot, np.asarray(indices))

        order, coming = next_block(order)
        for left in range(updates, 0, -block):
            ready = coming.result()
            if left > block:
                order, coming = next_block(order)
            begin, taken = jnp.array(learner.update), jnp.int32(min(left, block))
            now = work._replace(stores={}, updates=taken, ahead=ready, begin=begin)
            learner = jax.block_until_ready(_block(index, now, learner))  # type: ignore[no-untyped-call]
    return learner


def _fetched(draw: Sampler, depot: OffloadedStore, indices: np.ndarray[Any, Any]) -> Ready:
    store, slots = depot.fetch(depot.rows(draw.unit, indices.reshape(-1)), draw.unit)
    return Ready(store, jnp.asarray(slots.reshape(indices.shape)), jnp.asarray(indices), None)


def _phase(index: int, algorithm: Any) -> Phase:
    found: Phase = algorithm.phases()[index]
    return found


@eqx.filter_jit
def _foreseen(index: int, algorithm: Any, order: Any, count: int, block: int) -> tuple[Any, jax.Array]:
    """The order after a block of updates, and which samples [K, B] they draw."""
    draw = cast(Any, _phase(index, algorithm).reads)

    def one(order: Any, _: None) -> tuple[Any, jax.Array]:
        indices, _ = draw.order.draw(order, jax.random.key(0), draw.size, count, jnp.zeros(()))
        return draw.order.learn(order, indices, None), indices

    return jax.lax.scan(one, order, None, length=block)


@eqx.filter_jit
def _prepared(index: int, algorithm: Any, state: Any, columns: Columns) -> Columns:
    prepare: Any = _phase(index, algorithm).prepare
    made: Columns = prepare(algorithm, state, columns)[1]
    return made


@eqx.filter_jit
def _told(index: int, algorithm: Any, state: Any, columns: Columns) -> dict[str, jax.Array]:
    conclude: Any = _phase(index, algorithm).conclude
    told: dict[str, jax.Array] = conclude(algorithm, state, columns)
    return told


@eqx.filter_jit
def _concluded(
    index: int, algorithm: Any, learner: LearnerState, told: dict[str, jax.Array], valid: jax.Array
) -> LearnerState:
    return concluded(_phase(index, algorithm), learner, told, valid)


def _block_of(index: int, work: ChunkInputs, learner: LearnerState) -> LearnerState:
    """`work.updates` updates on what was fetched, each as it would be on the device."""
    moving, fixed = eqx.partition(learner, eqx.is_array)
    phase = _phase(index, work.algorithm)
    moved: LearnerState = eqx.combine(
        repeated(work.updates, lambda one: watched_update(work, phase, one), moving, fixed), fixed
    )
    return moved


_programs: dict[int, Any] = {}


def _block(index: int, work: ChunkInputs, learner: LearnerState) -> LearnerState:
    """The compiled block of a phase, which takes over the learner's buffers."""
    if index not in _programs:

        def program(work: ChunkInputs, learner: LearnerState) -> LearnerState:
            return _block_of(index, work, learner)

        _programs[index] = eqx.filter_jit(program, donate="all-except-first")
    moved: LearnerState = _programs[index](work, learner)
    return moved
