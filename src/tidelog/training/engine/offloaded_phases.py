"""Phases over segments that are stored off the device; a thread fetches the next block during the current one.

The computation and its order are those on the device; only the source of the segments differs.
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
from tidelog.networks.arrays import scalar
from tidelog.training.engine.learner import ChunkInputs, LearnerState, Ready, as_arrays, checked_update
from tidelog.training.engine.offload_storage import Storage
from tidelog.training.engine.plan import (
    RoundStep,
    add_concluded_metrics,
    planned_stores,
    repeat_in_place,
    samplers_of,
    store_of,
)
from tidelog.training.engine.segment_offload import OffloadedStore
from tidelog.training.online.host_rollouts import on_threads
from tidelog.types import Spec


class OffloadedPhases:
    """The offloaded stores of all members and their phases; false if there are none."""

    def __init__(self, storage: Storage, collectors: Sequence[Any], state: Any, spec: Spec) -> None:
        """`collectors` are algorithms that differ in numbers; `state` is the state of the first one."""
        self._phases: tuple[Phase, ...] = collectors[0].phases()
        planned = planned_stores(as_arrays(collectors[0]), state, spec) if storage.where != "device" else {}
        self._stores = [storage.offloaded_stores(player, planned, i) for i, player in enumerate(collectors)]
        self._is_offloaded = [
            any(draw.store in self._stores[0] for draw in samplers_of(phase)) for phase in self._phases
        ]
        self._compiled = False

    def __bool__(self) -> bool:
        return any(self._is_offloaded)

    def is_here(self, step: RoundStep) -> bool:
        """Return whether a part of a round step runs on the device."""
        return step.collect or any(n and not away for n, away in zip(step.updates, self._is_offloaded, strict=True))

    def run(
        self, step: RoundStep, round: int, inputs: Sequence[ChunkInputs], learners: Sequence[LearnerState]
    ) -> list[LearnerState]:
        """Return the learners after their offloaded phases; segments of finished phases are added to the stores."""

        def one(member: int) -> LearnerState:
            learner, stores = learners[member], self._stores[member]
            for i, phase in enumerate(self._phases):
                if step.end[i] and phase.into in stores:
                    stores[phase.into].add(round, learner.segments[store_of(phase)].columns)
                if self._is_offloaded[i] and step.updates[i]:
                    learner = run_phase(i, step, inputs[member], learner, stores[store_of(phase)])
            return learner

        moved: list[LearnerState] = on_threads(one, len(learners), self._compiled)
        self._compiled |= any(n and offloaded for n, offloaded in zip(step.updates, self._is_offloaded, strict=True))
        return moved

    def piece_names(self) -> list[dict[str, list[str]]]:
        """Write the pieces of each member to files, and return their names by store."""
        return [{name: store.saved() for name, store in stores.items()} for stores in self._stores]

    def restore_pieces(self, piece_names: Sequence[Mapping[str, list[str]]]) -> None:
        """Restore the pieces that a checkpoint names; CheckpointError if one is missing or changed."""
        for stores, names in zip(self._stores, piece_names or [{}] * len(self._stores), strict=True):
            for name, store in stores.items():
                store.restore_pieces(names.get(name, []))

    def delete_other_pieces(self, piece_names: Sequence[Sequence[Mapping[str, list[str]]]]) -> None:
        """Delete the pieces that no checkpoint names."""
        for i, stores in enumerate(self._stores):
            for name, store in stores.items():
                store.delete_other_pieces({piece for one in piece_names if one for piece in one[i].get(name, [])})

    def notes(self) -> list[str]:
        """Return the size and the location of each store."""
        return [note for name, store in self._stores[0].items() for note in store.notes(name, len(self._stores))]


def run_phase(
    index: int, step: RoundStep, inputs: ChunkInputs, learner: LearnerState, store: OffloadedStore
) -> LearnerState:
    """Run a phase, or a part of it, over an offloaded store: prepare, update and conclude as the round step says."""
    phase = inputs.algorithm.phases()[index]
    if step.begin[index] and phase.prepare is not None:
        store.prepare(lambda columns: _prepare_chunk(index, inputs.algorithm, learner.state, columns))
    learner = _update(index, step.updates[index], inputs, learner, store)
    if step.end[index]:
        if phase.conclude is not None:
            metrics, valid = store.conclude(
                lambda columns: _conclude_chunk(index, inputs.algorithm, learner.state, columns)
            )
            learner = _add_metrics(index, inputs.algorithm, learner, metrics, valid)
        if phase.empties:
            store.clear()
    return learner


def _update(
    index: int, updates: int, inputs: ChunkInputs, learner: LearnerState, store: OffloadedStore
) -> LearnerState:
    phase = inputs.algorithm.phases()[index]
    draw, order = cast(Sampler, phase.samplers), learner.orders[phase.name]
    count = store.count(draw.unit)
    block = min(store.block(draw), max(1, count // draw.size))
    with ThreadPoolExecutor(1) as ahead:

        def next_block(order: Any) -> tuple[Any, Future[Ready]]:
            order, indices = _draw_block(index, inputs.algorithm, order, count, block)
            return order, ahead.submit(_fetch, draw, store, np.asarray(indices))

        order, coming = next_block(order)
        for left in range(updates, 0, -block):
            ready = coming.result()
            if left > block:
                order, coming = next_block(order)
            begin, taken = jnp.array(learner.update), scalar(min(left, block))
            now = inputs._replace(stores={}, updates=taken, ahead=ready, begin=begin)
            learner = jax.block_until_ready(_block(index, now, learner))  # type: ignore[no-untyped-call]
    return learner


def _fetch(draw: Sampler, offloaded: OffloadedStore, indices: np.ndarray[Any, Any]) -> Ready:
    store, slots = offloaded.fetch(offloaded.rows(draw.unit, indices.reshape(-1)), draw.unit)
    return Ready(store, jnp.asarray(slots.reshape(indices.shape)), jnp.asarray(indices), None)


def _phase(index: int, algorithm: Any) -> Phase:
    phase: Phase = algorithm.phases()[index]
    return phase


@eqx.filter_jit
def _draw_block(index: int, algorithm: Any, order: Any, count: int, block: int) -> tuple[Any, jax.Array]:
    """Return the order after a block of updates, and the samples [K, B] that they draw."""
    draw = cast(Any, _phase(index, algorithm).samplers)

    def one(order: Any, _: None) -> tuple[Any, jax.Array]:
        indices, _ = draw.order.draw(order, jax.random.key(0), draw.size, count, jnp.zeros(()))
        return draw.order.learn(order, indices, None), indices

    return jax.lax.scan(one, order, None, length=block)


@eqx.filter_jit
def _prepare_chunk(index: int, algorithm: Any, state: Any, columns: Columns) -> Columns:
    prepare: Any = _phase(index, algorithm).prepare
    prepared: Columns = prepare(algorithm, state, columns)[1]
    return prepared


@eqx.filter_jit
def _conclude_chunk(index: int, algorithm: Any, state: Any, columns: Columns) -> dict[str, jax.Array]:
    conclude: Any = _phase(index, algorithm).conclude
    metrics: dict[str, jax.Array] = conclude(algorithm, state, columns)
    return metrics


@eqx.filter_jit
def _add_metrics(
    index: int, algorithm: Any, learner: LearnerState, metrics: dict[str, jax.Array], valid: jax.Array
) -> LearnerState:
    return add_concluded_metrics(_phase(index, algorithm), learner, metrics, valid)


def _block_of(index: int, inputs: ChunkInputs, learner: LearnerState) -> LearnerState:
    """Take `inputs.updates` updates on fetched segments, each equal to an update on the device."""
    moving, fixed = eqx.partition(learner, eqx.is_array)
    phase = _phase(index, inputs.algorithm)
    moved: LearnerState = eqx.combine(
        repeat_in_place(inputs.updates, lambda one: checked_update(inputs, phase, one), moving, fixed), fixed
    )
    return moved


_programs: dict[int, Any] = {}


def _block(index: int, inputs: ChunkInputs, learner: LearnerState) -> LearnerState:
    """Run the compiled block of a phase; it donates the learner's buffers."""
    if index not in _programs:

        def program(inputs: ChunkInputs, learner: LearnerState) -> LearnerState:
            return _block_of(index, inputs, learner)

        _programs[index] = eqx.filter_jit(program, donate="all-except-first")
    moved: LearnerState = _programs[index](inputs, learner)
    return moved
