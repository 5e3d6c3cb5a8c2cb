"""A gated recurrent unit on batches (Cho et al. 2014). Letters: `B` batch, `T` time, `F` features, `H` width."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.arrays import zeros
from tidelog.networks.mlp import orthogonal


class GRU(eqx.Module):
    """A unit with state [B, H]; the three gates (reset, update, candidate) share one matrix in each direction."""

    inward: jax.Array  # [F, 3H]
    recurrent: jax.Array  # [H, 3H]
    bias: jax.Array  # [3H]
    candidate_bias: jax.Array  # [H]: inside the reset gate

    @classmethod
    def create(cls, generator: np.random.Generator, inputs: int, width: int) -> GRU:
        """Return a unit with orthogonal weights and zero biases."""
        inward = jnp.concatenate([orthogonal(generator, inputs, width, 1.0) for _ in range(3)], axis=1)
        recurrent = jnp.concatenate([orthogonal(generator, width, width, 1.0) for _ in range(3)], axis=1)
        return cls(inward, recurrent, zeros(3 * width), zeros(width))

    @property
    def width(self) -> int:
        """Return the size of the state."""
        return self.recurrent.shape[0]

    def start(self, batch: int) -> jax.Array:
        """Return the initial state: zeros [B, H]."""
        return jnp.zeros((batch, self.width))

    def __call__(self, carry: jax.Array, x: jax.Array) -> jax.Array:
        """One step: carry [..., H] and features [..., F] -> the new carry [..., H]."""
        return self._step(carry, x @ self.inward + self.bias)

    def unroll(self, x: jax.Array, real: jax.Array) -> jax.Array:
        """All steps of windows: features [B, T, F], real [B, T] -> carries [B, T, H].

        A window starts from zeros; a step that is not real sets zeros, so an episode within the window also starts
        from zeros.
        """
        projected = x @ self.inward + self.bias

        def step(carry: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            gates, there = now
            after = jnp.where(there[:, None], self._step(carry, gates), 0.0)
            return after, after

        inputs = jnp.swapaxes(projected, 0, 1), jnp.swapaxes(real, 0, 1)
        _, carries = jax.lax.scan(step, self.start(x.shape[0]), inputs)
        return jnp.swapaxes(carries, 0, 1)

    def follow(self, carry: jax.Array, x: jax.Array, first: jax.Array) -> jax.Array:
        """All steps of segments: from carry [B, H], features [B, T, F] -> carries [B, T, H].

        A step that is `first` [B, T] of its episode starts from zeros.
        """
        projected = x @ self.inward + self.bias

        def step(carry: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            gates, begins = now
            after = self._step(jnp.where(begins[:, None], 0.0, carry), gates)
            return after, after

        inputs = jnp.swapaxes(projected, 0, 1), jnp.swapaxes(first, 0, 1)
        _, carries = jax.lax.scan(step, carry, inputs)
        return jnp.swapaxes(carries, 0, 1)

    def _step(self, carry: jax.Array, projected: jax.Array) -> jax.Array:
        in_reset, in_update, in_candidate = jnp.split(projected, 3, axis=-1)
        from_reset, from_update, from_candidate = jnp.split(carry @ self.recurrent, 3, axis=-1)
        reset = jax.nn.sigmoid(in_reset + from_reset)
        update = jax.nn.sigmoid(in_update + from_update)
        candidate = jnp.tanh(in_candidate + reset * (from_candidate + self.candidate_bias))
        return update * carry + (1.0 - update) * candidate
