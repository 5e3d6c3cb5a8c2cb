"""Items as vectors of length 1, and critics of items. Letters: `N` items, `D` item vector size, `F` features."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.mlp import MLP, Linear, from_host, zeros


class Items(NamedTuple):
    """Items: directions [..., D] of length 1, and their log-popularity bias [...], independent of the state."""

    vectors: jax.Array
    bias: jax.Array


class Table(eqx.Module):
    """One row per item, plus the output of a tower over its features where there is one; row 0 is no item."""

    weight: jax.Array  # [N + 1, D]
    bias: jax.Array  # [N + 1]
    tower: MLP | None  # [F] -> [D + 1]

    @classmethod
    def create(
        cls, generator: np.random.Generator, items: int, size: int, features: int | None, hidden: tuple[int, ...]
    ) -> Table:
        """Return random directions; with a tower rows are zeros: a new item then depends on its features only."""
        if features is None:
            return cls(from_host(generator.standard_normal((items + 1, size)) / np.sqrt(size)), zeros(items + 1), None)
        tower = MLP.create(generator, (features, *hidden, size + 1))
        return cls(zeros(items + 1, size), zeros(items + 1), tower)

    def __call__(self, items: jax.Array | None, features: jax.Array | None) -> Items:
        """Return items by index [...], or all of them in order; `features` [N + 1, F] of all."""
        weight, bias = (self.weight, self.bias) if items is None else (self.weight[items], self.bias[items])
        if self.tower is not None and features is not None:
            outputs = self.tower(features if items is None else features[items])
            weight, bias = weight + outputs[..., :-1], bias + outputs[..., -1]
        return Items(directed(weight), bias)


def directed(vectors: jax.Array) -> jax.Array:
    """Return vectors [..., D] scaled to length 1."""
    return vectors * jax.lax.rsqrt(jnp.sum(jnp.square(vectors), axis=-1, keepdims=True) + 1e-12)


class Pair(eqx.Module):
    """A network of a state [..., S] and an item's vector [..., D]; each is encoded once for all pairs."""

    state: Linear
    item: Linear
    body: MLP

    @classmethod
    def create(cls, generator: np.random.Generator, state: int, item: int, hidden: tuple[int, ...], out: int) -> Pair:
        """Return a network of widths `hidden`, with uniform fan-in initialisation as in BCQ's networks."""
        first, body = hidden[0], MLP.create(generator, (*hidden, out), linear=Linear.uniform)
        return cls(Linear.uniform(generator, state, first), Linear.uniform(generator, item, first), body)

    def __call__(self, state: jax.Array, vector: jax.Array) -> jax.Array:
        """[..., out]; shapes are broadcast, as states [P, 1, S] with candidates [P, C, D]."""
        return self.body(jax.nn.relu(self.state(state) + self.item(vector)))

    def among(self, state: jax.Array, vectors: jax.Array, chosen: jax.Array) -> jax.Array:
        """[P, C, out] of selected items [P, C] out of all [N, D]; encodes all items or the selected ones, the fewer."""
        encoded = self.item(vectors)[chosen] if len(vectors) <= chosen.size else self.item(vectors[chosen])
        return self.body(jax.nn.relu(self.state(state)[:, None] + encoded))


class ItemCritics(eqx.Module):
    """Item critics, `E` of them."""

    members: tuple[Pair, ...]

    def __call__(self, state: jax.Array, vector: jax.Array) -> jax.Array:
        """[E, ...]."""
        return jnp.stack([member(state, vector)[..., 0] for member in self.members])

    def among(self, state: jax.Array, vectors: jax.Array, chosen: jax.Array) -> jax.Array:
        """[E, P, C] of selected items [P, C] out of all [N, D]."""
        return jnp.stack([member.among(state, vectors, chosen)[..., 0] for member in self.members])


class ItemGenerator(eqx.Module):
    """A conditional variational autoencoder of item vectors [..., D], given states."""

    inward: Pair
    outward: Pair

    def encode(self, state: jax.Array, vector: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and log-std [..., L] of the latents of a vector."""
        mean, log_std = jnp.split(self.inward(state, vector), 2, axis=-1)
        return mean, jnp.clip(log_std, -4.0, 15.0)

    def decode(self, state: jax.Array, latent: jax.Array) -> jax.Array:
        """Return the direction [..., D] of latents."""
        return directed(self.outward(state, latent))


class Correction(eqx.Module):
    """The direction of a vector's perturbation, one number per dimension within [-1, 1]."""

    body: Pair

    def __call__(self, state: jax.Array, vector: jax.Array) -> jax.Array:
        return jnp.tanh(self.body(state, vector))


def turned(vector: jax.Array, direction: jax.Array, reach: Any) -> jax.Array:
    """Move vectors of length 1 by at most `reach / sqrt(D)` per coordinate and scale them back to length 1."""
    return directed(vector + reach / np.sqrt(vector.shape[-1]) * direction)
