"""A saved policy that acts with NumPy alone: no JAX, and nothing of training, is imported.

The same calls as `tidelog.Policy`, and the same answers within the bounds that the artefact's parity record states.
Letters: `B` batch, `A` number of actions or action size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tidelog.errors import SpecError
from tidelog.runtime.artefact_files import Saved
from tidelog.runtime.memory import Memory, carried
from tidelog.runtime.observations import Intake, read_mask, read_observation
from tidelog.runtime.policy_heads import Made, Seen
from tidelog.runtime.recipe import Noise
from tidelog.types import Continuous, Discrete, Spec

NumpyArray = np.ndarray[Any, Any]


class Policy:
    """Acts on raw observations: one, a batch, a mapping by name, or a data frame. NumPy in, NumPy out.

    `make` computes [B] rows of what was seen; `rate` values of all actions, or is None.
    """

    def __init__(
        self,
        saved: Saved,
        make: Callable[[Seen], Made],
        rate: Callable[[Mapping[str, NumpyArray]], NumpyArray] | None,
        *,
        noise: Noise | None,
        epsilon: float | None,
        width: int,
        chunk: int,
    ) -> None:
        self.spec: Spec = saved.spec
        self.manifest: Mapping[str, Any] = saved.manifest
        self._make, self._rate, self._noise, self._epsilon = make, rate, noise, epsilon
        self._width, self._chunk = width, chunk

    @property
    def is_recurrent(self) -> bool:
        """Whether every step takes a memory, made by `start`."""
        return self._width > 0

    def start(self, count: int = 1) -> Memory:
        """A memory for `count` episodes side by side, at their start; SpecError where the policy has none."""
        if not self.is_recurrent:
            raise SpecError("this policy has no memory: call it without one")
        return Memory(np.zeros((count, self._width), np.float32))

    def __call__(self, observation: Any, mask: Any = None, memory: Memory | None = None) -> NumpyArray:
        """The deterministic action of one observation, or actions [B, ...] of a batch; `mask` [A] or [B, A] bool."""
        intake = self._read(observation, mask)
        return _unbatched(self._own_units(self._run(intake, memory).action), intake)

    def sample(self, observation: Any, seed: int = 0, mask: Any = None, memory: Memory | None = None) -> NumpyArray:
        """Random actions of the stochastic policy; the same seed and observations give the same actions.

        They are drawn as often as those of `tidelog.Policy`, from another stream of random numbers.
        """
        return self.sample_with_propensity(observation, seed, mask, memory)[0]

    def sample_with_propensity(
        self, observation: Any, seed: int = 0, mask: Any = None, memory: Memory | None = None
    ) -> tuple[NumpyArray, NumpyArray | None]:
        """Random actions, and their probability or density [B] in the actions' own units (None without one)."""
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
            raise SpecError(f"seed = {seed!r}: expected a whole number from 0 to {2**32 - 1:,}")
        intake = self._read(observation, mask)
        made = self._run(intake, memory, np.random.default_rng(seed))
        action = self._own_units(made.action)
        likely = self._propensity(made, action)
        return _unbatched(action, intake), None if likely is None else _unbatched(likely, intake)

    def probabilities(self, observation: Any, mask: Any = None, memory: Memory | None = None) -> NumpyArray:
        """Probabilities [A] or [B, A] of discrete actions when sampling; SpecError for other ones.

        A memory stays where it is.
        """
        if not isinstance(self.spec.action, Discrete):
            raise SpecError("probabilities are for discrete actions")
        intake = self._read(observation, mask)
        made = self._run(intake, None if memory is None else Memory(memory.carry))
        return _unbatched(made.probabilities, intake)

    def q_values(self, observation: Any) -> NumpyArray:
        """The critic's values [A] or [B, A] of discrete actions, in scaled rewards; SpecError where there are none."""
        if self._rate is None:
            raise SpecError("this policy rates no actions")
        intake = self._read(observation, None)
        parts = [self._rate(leaves) for _, leaves in _chunks(intake, self._chunk)]
        return _unbatched(np.concatenate(parts), intake)

    def _read(self, observation: Any, mask: Any) -> Intake:
        return read_mask(read_observation(observation, self.spec, padded=False), mask, self.spec)

    def _run(self, intake: Intake, memory: Memory | None, generator: np.random.Generator | None = None) -> Made:
        carry = carried(memory, intake.size, self.is_recurrent)
        made = []
        for rows, leaves in _chunks(intake, self._chunk):
            noise = None if generator is None else self._draw(generator, len(next(iter(leaves.values()))))
            mask, state = (None if x is None else x[rows] for x in (intake.mask, carry))
            made.append(self._make(Seen(leaves, mask, state, noise)))
        whole = made[0] if len(made) == 1 else Made(*(_joined(parts) for parts in zip(*made, strict=True)))
        if memory is not None and whole.carry is not None:
            memory.carry = np.asarray(whole.carry)
        return whole

    def _draw(self, generator: np.random.Generator, rows: int) -> NumpyArray | None:
        noise = self._noise
        if noise is None:
            return None
        if noise.kind == "latents":
            count, size = noise.shape
            latents = generator.standard_normal((count, rows, size), np.float32)
            return np.clip(latents, -noise.clip, noise.clip)
        if noise.kind == "gumbel":
            return generator.gumbel(size=(rows, *noise.shape)).astype(np.float32)
        drawn = generator.standard_normal((rows, *noise.shape), np.float32)
        if self._epsilon is not None:  # else the mode, which has no density
            drawn[generator.random(rows) >= self._epsilon] = 0.0
        return drawn

    def _own_units(self, action: NumpyArray) -> NumpyArray:
        space = self.spec.action
        if isinstance(space, Continuous):
            moved: NumpyArray = space.executed(np.asarray(action)).astype(np.float32)
            return moved
        return np.asarray(action).astype(np.int32)

    def _propensity(self, made: Made, action: NumpyArray) -> NumpyArray | None:
        space = self.spec.action
        if made.probabilities is not None:
            return np.take_along_axis(np.asarray(made.probabilities), action[:, None], axis=-1)[:, 0]
        if not isinstance(space, Continuous) or made.spread is None or self._epsilon is not None:
            return None
        away = (space.to_unit(action) - made.mean) / made.spread
        logs = -0.5 * np.square(away) - np.log(made.spread) - 0.5 * math.log(2 * math.pi)
        density: NumpyArray = np.exp(logs.sum(axis=-1) - space.log_volume())
        return density


def _chunks(intake: Intake, size: int) -> Iterator[tuple[slice, dict[str, NumpyArray]]]:
    for start in range(0, intake.size, size):
        rows = slice(start, start + size)
        yield rows, {name: leaf[rows] for name, leaf in intake.leaves.items()}


def _joined(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


def _unbatched(values: Any, intake: Intake) -> NumpyArray:
    found = np.asarray(values)
    return found[0] if intake.single else found
