"""Observations of named leaves -> one feature vector a row. Letters: `B` batch, `T` time, `C` categorical columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.convolution import Convolutions, Layers, by_size, features
from tidelog.networks.memory import GRU
from tidelog.networks.mlp import Linear, from_host
from tidelog.types import Codes, Image, Observation, Spec, Transition, Vector

Seen: TypeAlias = Observation | jax.Array  # observations, or the features that an encoder made of them before


Sharing = Callable[[Spec], bool]


def with_pictures(spec: Spec) -> bool:
    """Whether anything that is seen is a picture."""
    return any(isinstance(leaf, Image) for leaf in spec.observation.values())


def always(spec: Spec) -> bool:
    """True, whatever is seen."""
    return True


def never(spec: Spec) -> bool:
    """False, whatever is seen."""
    return False


SHARING: Mapping[str, Sharing] = {"pictures": with_pictures, "always": always, "never": never}


@dataclass(frozen=True)
class EncoderConfig:
    """How observations are turned into features; the same for all networks of an algorithm."""

    embedding: int  # width of a categorical column's table
    picture_width: int  # features of a picture
    convolutions: Layers = by_size
    memory: int | None = None  # width of the recurrent unit; None: no memory

    def size(self, spec: Spec) -> int:
        """How many features an Encoder makes of a spec's observations."""
        return self.memory or sum(self._leaf_size(leaf) for leaf in spec.observation.values())

    def _leaf_size(self, leaf: Vector | Codes | Image) -> int:
        if isinstance(leaf, Vector):
            return leaf.size
        return self.embedding * len(leaf.sizes) if isinstance(leaf, Codes) else self.picture_width


class Picture(eqx.Module):
    """Convolutions and a dense layer with ReLU: uint8 [..., H, W, C] -> [..., features]."""

    convolutions: Convolutions
    dense: Linear

    @classmethod
    def create(cls, generator: np.random.Generator, leaf: Image, sight: EncoderConfig) -> Picture:
        """The dense layer begins as its convolutions do: weights of norm 1.4 after stacks, else orthogonal ones."""
        convolutions = Convolutions.create(generator, leaf, sight.convolutions)
        flat = features(leaf, convolutions.shapes)
        if convolutions.stacked:
            return cls(convolutions, Linear.normed(generator, flat, sight.picture_width, 1.4))
        return cls(convolutions, Linear.create(generator, flat, sight.picture_width))

    def __call__(self, picture: jax.Array) -> jax.Array:
        return jax.nn.relu(self.dense(self.convolutions(picture)))


class Encoder(eqx.Module):
    """Numbers pass through, codes are looked up in tables, pictures convolved; then all are concatenated.

    Leaves [B, ...] -> [B, features]. With a memory, windows [B, T, ...] -> [B, T, width]. The tables start standard
    normal, the scale that standardised numbers have.
    """

    tables: dict[str, tuple[jax.Array, ...]]  # one [size, embedding] a categorical column
    pictures: dict[str, Picture]
    memory: GRU | None
    leaves: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def create(cls, generator: np.random.Generator, spec: Spec, sight: EncoderConfig) -> Encoder:
        """Tables, convolutions and memory for the leaves of a spec."""
        tables, pictures = {}, {}
        for name, leaf in sorted(spec.observation.items()):
            if isinstance(leaf, Codes):
                drawn = [generator.standard_normal((size, sight.embedding)) for size in leaf.sizes]
                tables[name] = tuple(from_host(table) for table in drawn)
            elif isinstance(leaf, Image):
                pictures[name] = Picture.create(generator, leaf, sight)
        memory = None
        if sight.memory is not None:
            memory = GRU.create(generator, EncoderConfig(sight.embedding, sight.picture_width).size(spec), sight.memory)
        return cls(tables, pictures, memory, tuple(sorted(spec.observation)))

    def __call__(self, observation: Seen, real: jax.Array | None = None) -> jax.Array:
        if isinstance(observation, jax.Array):
            return observation
        seen = self.leaf_features(observation)
        if self.memory is None:
            return seen
        if real is None:
            raise TypeError("a network with a memory reads windows, with real [B, T]")
        return self.memory.unroll(seen, real)

    def leaf_features(self, observation: Observation) -> jax.Array:
        """What is seen now, [..., features], without memory."""
        parts: list[jax.Array] = []
        for name in self.leaves:
            leaf = jnp.asarray(observation[name])
            if name in self.tables:
                parts += [table[leaf[..., c]] for c, table in enumerate(self.tables[name])]
            else:
                parts.append(self.pictures[name](leaf) if name in self.pictures else leaf)
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)

    def both(self, row: Transition) -> tuple[jax.Array, jax.Array]:
        """Features of what was seen and of what followed; with a memory, each of the latter from its predecessor."""
        if self.memory is None or row.last is None:
            return self(row.observation), self(row.next_observation)
        carries = self(row.observation, row.real)
        before = jnp.take_along_axis(carries, row.last[..., None], axis=1)
        return carries, self.memory(before, self.leaf_features(row.next_observation))

    def follow(self, observation: Observation, carry: jax.Array, first: jax.Array) -> jax.Array:
        """What is carried after every step of segments [B, T, width], from carry [B, width]; `first` [B, T] forgets."""
        return self._unit().follow(carry, self.leaf_features(observation), first)

    def further(self, carries: jax.Array, observation: Observation) -> jax.Array:
        """What would be carried one step after each [B, T, width], having seen what followed it."""
        return self._unit()(carries, self.leaf_features(observation))

    def _unit(self) -> GRU:
        if self.memory is None:
            raise TypeError("a network without a memory sees steps, not segments")
        return self.memory

    def start(self, batch: int) -> jax.Array | None:
        """What is carried before anything was seen, [B, width], or None without a memory."""
        return None if self.memory is None else self.memory.start(batch)

    def step(self, observation: Observation, carry: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
        """Features of one more observation [B, ...], and what is carried on."""
        seen = self.leaf_features(observation)
        if self.memory is None or carry is None:
            return seen, None
        moved = self.memory(carry, seen)
        return moved, moved


def now(network: Any, row: Transition) -> Seen:
    """What a network sees, looked at once for all that it is asked: features of ours, the observations for others."""
    encoder = getattr(network, "encoder", None)
    return encoder(row.observation, row.real) if isinstance(encoder, Encoder) else row.observation


def after(network: Any, row: Transition) -> Seen:
    """What a network sees of what followed, looked at once; with a memory, each from its predecessor's state."""
    encoder = getattr(network, "encoder", None)
    return encoder.both(row)[1] if isinstance(encoder, Encoder) else row.next_observation
