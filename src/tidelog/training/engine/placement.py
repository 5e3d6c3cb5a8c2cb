"""Which members train in one program, and on which devices. Letters: `S` members, `G` groups, `B` batch.

A group is one member, or several that are stacked along a leading axis. Groups share nothing: with several devices each
group has its own, with a copy of the data, and no group waits for another. A group may have several devices that share
its batches: each holds the data and the learner, computes the gradients of its part of a batch, and XLA adds them up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tidelog.algorithms.core.contract import Phase
from tidelog.algorithms.core.sampling import Sampler
from tidelog.errors import ConfigError
from tidelog.training.engine.learner import BATCH_AXIS, LearnerState, stack, unstack


class Placement(NamedTuple):
    """The first member of each group [G + 1], the last entry is S; and where each group is.

    That is None for JAX's own choice, a device, or a sharding that puts a copy on each device of a mesh.
    """

    begins: tuple[int, ...]
    places: tuple[Any, ...]

    @classmethod
    def of(cls, members: int, together: bool, devices: int | Mapping[str, int] | None = None) -> Placement:
        """Return S members in groups: one for each place if `together`, else one for each member.

        ConfigError where there are fewer devices.
        """
        places = [None] if devices is None else _places(devices)
        groups = min(members, len(places)) if together else members
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
        return self.apart([_light(group) for group in groups] if self.stacks else groups)


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
                    f"{draw.size} samples, expected a multiple of {devices}. fix: use batches of {sizes} samples, or "
                    "another number of devices"
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
            f"devices = {devices}: this machine has {many} ({local[0].platform}). fix: use {others}, or leave it out; "
            "a run of several processes goes on in as many"
        )
    if batch == 1:
        return local[:groups]
    by_process = [[one for one in jax.devices() if one.process_index == rank] for rank in range(count)]
    places = [slice(group * each, (group + 1) * each) for group in range(groups)]
    meshes = (
        Mesh(np.array([one for ranked in by_process for one in ranked[place]]), (BATCH_AXIS,)) for place in places
    )
    return [NamedSharding(mesh, PartitionSpec()) for mesh in meshes]  # type: ignore[no-untyped-call]


def _light(learner: LearnerState) -> LearnerState:
    collection = learner.collection_state
    collection = None if collection is None else collection._replace(env_states=None, carried=None)
    return learner._replace(state=None, orders={}, segments={}, collection_state=collection)
