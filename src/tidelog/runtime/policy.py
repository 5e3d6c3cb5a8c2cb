"""A saved policy that acts with NumPy alone, without an import of JAX or of training code.

The same methods as `tidelog.Policy`, and the same answers within the bounds of the artefact's parity record.
Letters: `B` batch, `A` number of actions or action size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import CheckpointError, ConfigError, SpecError
from tidelog.runtime.artefact import SavedPolicy, notes_of
from tidelog.runtime.networks import (
    CANDIDATES,
    KINDS,
    FiniteNumbers,
    PolicyInputs,
    PolicyOutputs,
    Recipe,
    end_if_stopped,
    noise_of,
    smallest,
)
from tidelog.runtime.observations import RawBatch, read_action, read_mask, read_observation
from tidelog.runtime.way_of_acting import BasePolicy
from tidelog.types import Continuous, Discrete, Hybrid, Spec, has_densities

NumpyArray = np.ndarray[Any, Any]
CHUNK = 4096  # rows computed at once; fewer for candidates, because each row has many
CHUNK_OF_CANDIDATES = 64


class RecurrentState:
    """The recurrent state of a policy for `B` parallel episodes."""

    def __init__(self, carry: NumpyArray) -> None:
        self.carry = carry  # [B, width]

    def forget(self, rows: Any) -> None:
        """Reset rows (indices or [B] bool) whose episode has ended."""
        self.carry[rows] = 0.0

    def of(self, rows: Any) -> RecurrentState:
        """Return the memory of some rows."""
        return RecurrentState(self.carry[rows])


def carry_of(state: RecurrentState | None, rows: int, is_recurrent: bool) -> NumpyArray | None:
    """Return the recurrent state [B, width] for `rows` observations; SpecError for a missing or different recurrent
    state.
    """
    if state is None:
        if is_recurrent:
            raise SpecError(
                "this policy is recurrent", fix="state = policy.initial_state(count), then state=state at every step"
            )
        return None
    if len(state.carry) != rows:
        raise SpecError(
            f"the recurrent state has {len(state.carry)} episodes for {rows} observations",
            fix=f"policy.initial_state({rows})",
        )
    return state.carry


class NumpyPolicy(BasePolicy):
    """Acts on raw observations: one, a batch, a mapping by name, or a data frame. NumPy in, NumPy out."""

    def __init__(self, saved: SavedPolicy, recipe: Recipe) -> None:
        self.spec: Spec = saved.spec
        self.manifest: Mapping[str, Any] = saved.manifest
        self._act, self._values = recipe["act"], recipe["values"]
        self._kind = KINDS[self._act["kind"]]
        self._width: int = recipe["carry"]
        self._scales, self._unit, self._noise = saved.scales, saved.value_unit, noise_of(recipe, saved.spec)
        mixed = self._noise is not None and not isinstance(saved.spec.action, Discrete)
        self._epsilon: float | None = self._act.get("epsilon") if mixed else None
        self._chunk = CHUNK_OF_CANDIDATES if self._act["kind"] in CANDIDATES else CHUNK
        try:
            self.declare(saved.manifest.get("acting"), saved.manifest.get("verdict"))
        except ConfigError as error:
            raise CheckpointError(f"{saved.where}: {error.found}", error.expected, error.fix) from error

    @property
    def _learner(self) -> str:
        return str(self.manifest["algorithm"])

    def notes(self) -> list[str]:
        """Return notes for the user about this policy, as they were when it was saved."""
        return notes_of(self.manifest)

    @property
    def is_recurrent(self) -> bool:
        """Whether every step needs a recurrent state from `initial_state`."""
        return self._width > 0

    def initial_state(self, count: int = 1) -> RecurrentState:
        """Return a recurrent state for `count` parallel episodes at their start; SpecError without recurrence."""
        if not self.is_recurrent:
            raise SpecError("this policy is feed-forward and has no recurrent state", fix="call it without a state")
        return RecurrentState(np.zeros((count, self._width), np.float32))

    def act(
        self, observation: Any, seed: int | None = None, mask: Any = None, state: RecurrentState | None = None
    ) -> tuple[NumpyArray, NumpyArray | None]:
        """Return actions for programs, codes of discrete ones, and the propensities of a sample, else None.

        A sample needs a seed; without one, these are the most likely actions, whatever way of acting is declared.
        """
        inputs = self._read(observation, mask)
        outputs = self._run(inputs, state, None if seed is None else np.random.default_rng(seed))
        action = self._own_units(outputs.action)
        likely = None if seed is None else self._propensity(outputs, action)
        return as_written(self.spec.action, action, inputs.single), None if likely is None else unbatched(
            likely, inputs
        )

    def probabilities(self, observation: Any, mask: Any = None, state: RecurrentState | None = None) -> NumpyArray:
        """Return probabilities [A] or [B, A] of sampled discrete actions; SpecError for other actions.

        The recurrent state does not change.
        """
        if not isinstance(self.spec.action, Discrete):
            raise SpecError(
                "these actions are not discrete and have no probabilities", fix="use sample_with_propensity()"
            )
        inputs = self._read(observation, mask)
        outputs = self._run(inputs, None if state is None else RecurrentState(state.carry))
        return unbatched(outputs.probabilities, inputs)

    def q_values(self, observation: Any, action: Any = None) -> NumpyArray:
        """Return the critic's values [A] or [B, A] of discrete actions, or of chosen ones, one number or [B].

        They are in the unit of the log's rewards. SpecError without values, and for continuous actions.
        """
        if not self.has_values:
            fix = "use tl.load_policy(path).q_values(observation, action), with JAX, of a policy with a critic"
            raise SpecError("this policy has no Q-values without JAX", fix=fix)
        inputs = self._read(observation, None)
        with FiniteNumbers():
            values = np.concatenate([self.values(leaves) for _, leaves in _chunks(inputs, self._chunk)])
        if action is not None:
            codes = read_action(inputs, action, self.spec)
            values = np.take_along_axis(values, codes[:, None], axis=1)[:, 0]
        return unbatched(values, inputs)

    def outputs(self, seen: PolicyInputs) -> PolicyOutputs:
        """Return what the networks compute for [B] rows."""
        return self._kind(np, self._act, PolicyInputs(self._scaled(seen.leaves), *seen[1:]))

    @property
    def has_values(self) -> bool:
        """Whether the policy has a critic of discrete actions."""
        return self._values is not None

    def values(self, leaves: Mapping[str, NumpyArray]) -> NumpyArray:
        """Return the critic's values of all actions of [B] rows, in the unit of the log's rewards."""
        factor, constant = self._unit
        return np.asarray(smallest(np, self._values, self._scaled(leaves)), np.float64) * factor + constant

    def _scaled(self, leaves: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
        scaled = dict(leaves)
        for name, (mean, std) in self._scales.items():
            scaled[name] = (leaves[name] - mean) / std
        return scaled

    def _read(self, observation: Any, mask: Any) -> RawBatch:
        return read_mask(read_observation(observation, self.spec, padded=False), mask, self.spec)

    def _run(
        self, inputs: RawBatch, state: RecurrentState | None, generator: np.random.Generator | None = None
    ) -> PolicyOutputs:
        carry = carry_of(state, inputs.size, self.is_recurrent)
        parts = []
        for rows, leaves in _chunks(inputs, self._chunk):
            end_if_stopped()
            noise = None if generator is None else self._draw(generator, len(next(iter(leaves.values()))))
            mask, before = (None if x is None else x[rows] for x in (inputs.mask, carry))
            with FiniteNumbers():
                parts.append(self.outputs(PolicyInputs(leaves, mask, before, noise)))
        whole = parts[0] if len(parts) == 1 else _joined(parts)
        if state is not None and whole.carry is not None:
            state.carry = np.asarray(whole.carry)
        return whole

    def _draw(self, generator: np.random.Generator, rows: int) -> NumpyArray | None:
        noise = self._noise
        if noise is None:
            return None
        if noise.kind == "latents":
            count, size = noise.shape
            latents = generator.standard_normal((count, rows, size), np.float32)
            return np.clip(latents, -noise.clip, noise.clip)
        parts = [
            generator.gumbel(size=(rows, *one.shape)).astype(np.float32)
            if one.kind == "gumbel"
            else generator.standard_normal((rows, *one.shape), np.float32)
            for one in noise.parts or (noise,)
        ]
        drawn = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        if self._epsilon is not None:  # otherwise the mode, without density
            drawn[generator.random(rows) >= self._epsilon] = 0.0
        return drawn

    def _own_units(self, action: NumpyArray) -> NumpyArray:
        space = self.spec.action
        if isinstance(space, Continuous | Hybrid):
            executed: NumpyArray = space.executed(np.asarray(action)).astype(np.float32)
            return executed
        return np.asarray(action).astype(np.int32)

    def _propensity(self, outputs: PolicyOutputs, action: NumpyArray) -> NumpyArray | None:
        space = self.spec.action
        if outputs.probabilities is not None:
            return np.take_along_axis(np.asarray(outputs.probabilities), action[:, None], axis=-1)[:, 0]
        likely = _likelihood(space, outputs, action)
        if likely is None or self._epsilon is None:
            return None if likely is None else likely[0]
        if isinstance(space, Continuous) or (isinstance(space, Hybrid) and not space.is_discrete):
            return None
        return np.asarray(self._epsilon * likely[0] + (1.0 - self._epsilon) * likely[1])


def _likelihood(space: Any, outputs: PolicyOutputs, action: NumpyArray) -> tuple[NumpyArray, NumpyArray | bool] | None:
    """Return the probability or density [B] of actions in their own units, and of choices whether they are the most
    likely ones; None for a policy without a density.
    """
    if isinstance(space, Discrete):
        chances, action = np.asarray(outputs.probabilities), action.astype(np.int32)
        return np.take_along_axis(chances, action[:, None], axis=-1)[:, 0], chances.argmax(axis=-1) == action
    if isinstance(space, Continuous):
        if outputs.std is None:
            return None
        away = (space.to_unit(action) - outputs.mean) / outputs.std
        logs = -0.5 * np.square(away) - np.log(outputs.std) - 0.5 * math.log(2 * math.pi)
        return np.exp(logs.sum(axis=-1) - space.log_volume()), False
    if not outputs.parts:  # of candidates
        return None
    if isinstance(space, Hybrid):
        own = [action[:, columns] for columns in space.columns().values()]
        own = [
            one[:, 0] if isinstance(part, Discrete) else one for one, (_, part) in zip(own, space.parts, strict=True)
        ]
        spaces: list[Any] = [part for _, part in space.parts]
    else:
        own, spaces = list(action.T), [Discrete(n) for n in space.sizes]
    each = [_likelihood(*one) for one in zip(spaces, outputs.parts, own, strict=True)]
    known = [one for one in each if one is not None]
    if len(known) < len(each):
        return None
    likely, modes = zip(*known, strict=True)
    return np.prod(np.stack(likely), axis=0), np.all(np.stack(np.broadcast_arrays(*modes)), axis=0)


def as_written(space: Any, action: NumpyArray, single: bool) -> Any:
    """Return actions [B, ...], of one observation the first, of an action with parts as the mapping that it is."""
    own = action[0] if single else action
    return space.unpack(own) if isinstance(space, Hybrid) else own


def as_rows(space: Any, action: Any) -> NumpyArray:
    """Return actions as an array: what the mapping of an action with parts packs to."""
    return np.asarray(space.pack(action) if isinstance(space, Hybrid) else action)


def _chunks(inputs: RawBatch, size: int) -> Iterator[tuple[slice, dict[str, NumpyArray]]]:
    if inputs.size <= size:
        yield slice(None), inputs.leaves
        return
    for start in range(0, inputs.size, size):
        rows = slice(start, start + size)
        yield rows, {name: leaf[rows] for name, leaf in inputs.leaves.items()}


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], tuple):
        joined = [_joined(column) for column in zip(*parts, strict=True)]
        return PolicyOutputs(*joined) if isinstance(parts[0], PolicyOutputs) else tuple(joined)
    return None if parts[0] is None else np.concatenate(parts)


def unbatched(values: Any, inputs: RawBatch) -> NumpyArray:
    """Return values [B, ...], of one observation the first."""
    array = np.asarray(values)
    return array[0] if inputs.single else array


# A policy along recorded episodes: its outputs at every step, with its recurrent state.
#
# Letters: `B` batch, `N` recorded steps, `E` episodes.

Leaves = dict[str, NDArray[Any]]
Mask = NDArray[np.bool_] | None
Answer = Callable[[Leaves, Mask, NDArray[Any] | slice, RecurrentState | None], NDArray[Any] | None]


def replay_actions(policy: BasePolicy, leaves: Leaves, starts: NDArray[Any], mask: Mask = None) -> NDArray[Any]:
    """Return the most likely actions [N, ...] for observations in episode order; `starts` [E + 1]: first rows, N.

    Discrete actions are codes, whatever way of acting is declared; actions with parts are rows [N, W].
    """

    def answer(seen: Leaves, allowed: Mask, rows: Any, state: RecurrentState | None) -> NDArray[Any]:
        return as_rows(policy.spec.action, policy.act(seen, mask=allowed, state=state)[0])

    return cast("NDArray[Any]", replay(policy, leaves, starts, mask, answer))


def likeness(space: Any, actions: NDArray[Any], logged: NDArray[Any]) -> NDArray[Any]:
    """Compare actions [N, ...] with others: [N] distances, or without continuous numbers 1 where all choices are equal.

    With parts the distance is in network units, and another choice is 1 away.
    """
    if not has_densities(space):
        same: NDArray[Any] = (actions == logged).reshape(len(logged), -1).all(axis=-1).astype(np.float64)
        return same
    apart = actions - logged
    if isinstance(space, Hybrid):
        apart = np.where(space.codes, actions != logged, space.to_unit(actions) - space.to_unit(logged))
    distance: NDArray[Any] = np.linalg.norm(apart, axis=-1)
    return distance


def replay_log_probability(
    policy: Any, leaves: Leaves, action: NDArray[Any], starts: NDArray[Any], mask: Mask = None
) -> NDArray[Any] | None:
    """Return log-probabilities [N] of logged actions, or None without a density."""
    return replay(
        policy,
        leaves,
        starts,
        mask,
        lambda seen, allowed, rows, state: policy.log_probability(seen, action[rows], allowed, state),
    )


def replay(policy: BasePolicy, leaves: Leaves, starts: NDArray[Any], mask: Mask, answer: Answer) -> NDArray[Any] | None:
    """Return the outputs [N, ...] of `answer(leaves, mask, rows, state)` at every step, or None after the first None.

    A feed-forward policy is called once for all rows. A recurrent policy is called step by step, for all episodes that
    continue; where the call does not update the recurrent state, acting updates it.
    """
    if not policy.is_recurrent:
        return answer(leaves, mask, slice(None), None)
    lengths = np.diff(starts)
    order = np.argsort(-lengths, kind="stable")  # longest first: the episodes that continue are always the first ones
    state, outputs = policy.initial_state(len(order)), dict[int, NDArray[Any]]()
    for t in range(int(lengths.max())):
        rows = starts[order[: int((lengths > t).sum())]] + t
        seen, allowed = {name: leaf[rows] for name, leaf in leaves.items()}, None if mask is None else mask[rows]
        state = state.of(slice(len(rows)))
        before = state.carry
        output = answer(seen, allowed, rows, state)
        if output is None:
            return None
        if state.carry is before:
            policy.act(seen, mask=allowed, state=state)
        outputs |= zip(rows.tolist(), output, strict=True)
    return np.stack([outputs[row] for row in range(len(outputs))])
