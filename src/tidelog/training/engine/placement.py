"""Which members train in one program, and on which device. Letters: `S` members, `G` groups.

A group is one member, or several that are stacked along a leading axis. Groups share nothing: with several devices each
group has its own, with a copy of the data, and no device waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax

from tidelog.errors import ConfigError
from tidelog.training.engine.learner import LearnerState, stack, unstack


class Placement(NamedTuple):
    """The first member of each group [G + 1], the last entry is S; and the device of each group, None for JAX's own."""

    begins: tuple[int, ...]
    devices: tuple[Any, ...]

    @classmethod
    def of(cls, members: int, together: bool, devices: int | None = None) -> Placement:
        """Return S members in groups: one for each device if `together`, else one for each member.

        ConfigError where this machine has fewer devices.
        """
        local = [None] if devices is None else _local(devices)
        groups = min(members, len(local)) if together else members
        begins = tuple(members * group // groups for group in range(groups + 1))
        return cls(begins, tuple(local[group % len(local)] for group in range(groups)))

    @property
    def sizes(self) -> list[int]:
        """The number of members of each group [G]."""
        return [end - begin for begin, end in pairwise(self.begins)]

    @property
    def stacks(self) -> bool:
        """Whether a group has several members."""
        return self.begins[-1] > len(self.devices)

    def grouped(self, parts: Sequence[Any]) -> list[Any]:
        """Return the parts of all members [S] as those of groups [G], on their devices."""
        groups = [parts[begin:end] for begin, end in pairwise(self.begins)]
        joined = [stack(list(group)) if len(group) > 1 else group[0] for group in groups]
        return [on_device(part, device) for part, device in zip(joined, self.devices, strict=True)]

    def near(self, part: Any, index: int) -> Any:
        """Return a part with its arrays on the device of a member."""
        return on_device(part, self.devices[self._group(index)])

    def copies(self, part: Any) -> list[Any]:
        """Return a part that all groups read, for each of them [G]; groups on one device share it."""
        there = {device: on_device(part, device) for device in set(self.devices)}
        return [there[device] for device in self.devices]

    def apart(self, groups: Sequence[LearnerState]) -> list[LearnerState]:
        """Return one learner per member [S]."""
        return [
            unstack(group, place) if end - begin > 1 else group
            for group, (begin, end) in zip(groups, pairwise(self.begins), strict=True)
            for place in range(end - begin)
        ]

    def state(self, groups: Sequence[LearnerState], index: int) -> Any:
        """Return the state of one member."""
        group = self._group(index)
        alone = self.begins[group + 1] - self.begins[group] == 1
        return groups[group].state if alone else unstack(groups[group].state, index - self.begins[group])

    def _group(self, index: int) -> int:
        return max(group for group, begin in enumerate(self.begins[:-1]) if begin <= index)

    def reporting(self, groups: Sequence[LearnerState]) -> list[LearnerState]:
        """Return one learner per member with the fields that reports read; stacked learners then copy little."""
        return self.apart([_light(group) for group in groups] if self.stacks else groups)


def on_device(part: Any, device: Any) -> Any:
    """Return a part with its arrays on a device; None leaves them where they are."""
    if device is None:
        return part
    arrays, rest = eqx.partition(part, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, device), rest)


def _local(devices: int) -> list[Any]:
    local: list[Any] = jax.local_devices()
    if devices > len(local):
        raise ConfigError(
            f"devices = {devices}: this machine has {len(local)} ({local[0].platform}). fix: use devices={len(local)}, "
            "or leave it out"
        )
    return local[:devices]


def _light(learner: LearnerState) -> LearnerState:
    collection = learner.collection_state
    collection = None if collection is None else collection._replace(env_states=None, carried=None)
    return learner._replace(state=None, orders={}, segments={}, collection_state=collection)
