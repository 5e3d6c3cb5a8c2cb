"""Observations of named leaves -> one feature vector per row. Letters: `B` batch, `T` time, `C` categorical columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.layers import GRU, Linear, float32
from tidelog.networks.pictures import Convolutions, Layers, by_size, features
from tidelog.types import Codes, Image, Observation, Spec, Transition, Vector

Seen: TypeAlias = Observation | jax.Array  # observations, or an encoder's features of them


Sharing = Callable[[Spec], bool]


def with_pictures(spec: Spec) -> bool:
    """Return whether an observation leaf is a picture."""
    return any(isinstance(leaf, Image) for leaf in spec.observation.values())


def always(spec: Spec) -> bool:
    """Return True."""
    return True


def never(spec: Spec) -> bool:
    """Return False."""
    return False


SHARING: Mapping[str, Sharing] = {"pictures": with_pictures, "always": always, "never": never}


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of an encoder; equal for all networks of an algorithm."""

    embedding: int = 32  # embedding width of a categorical column
    picture_width: int = 256  # features of a picture
    convolutions: Layers = by_size
    recurrent_size: int | None = None  # width of the recurrent unit; None: feed-forward

    def size(self, spec: Spec) -> int:
        """Return the number of features of an Encoder for this spec."""
        return self.recurrent_size or sum(self._leaf_size(leaf) for leaf in spec.observation.values())

    def _leaf_size(self, leaf: Vector | Codes | Image) -> int:
        if isinstance(leaf, Vector):
            return leaf.size
        return self.embedding * len(leaf.sizes) if isinstance(leaf, Codes) else self.picture_width


DEFAULT_ENCODER = EncoderConfig()


class Picture(eqx.Module):
    """Convolutions and a dense layer with ReLU: uint8 [..., H, W, C] -> [..., features]."""

    convolutions: Convolutions
    dense: Linear

    @classmethod
    def create(cls, generator: np.random.Generator, leaf: Image, encoder_config: EncoderConfig) -> Picture:
        """Initialise the dense layer as its convolutions: weights of norm 1.4 after stacks, else orthogonal."""
        convolutions = Convolutions.create(generator, leaf, encoder_config.convolutions)
        flat = features(leaf, convolutions.shapes)
        if convolutions.stacked:
            return cls(convolutions, Linear.normed(generator, flat, encoder_config.picture_width, 1.4))
        return cls(convolutions, Linear.create(generator, flat, encoder_config.picture_width))

    def __call__(self, picture: jax.Array) -> jax.Array:
        return jax.nn.relu(self.dense(self.convolutions(picture)))


class Encoder(eqx.Module):
    """Numbers pass through, codes are embedded, pictures convolved; then all are concatenated.

    Leaves [B, ...] -> [B, features]. With a recurrent unit, windows [B, T, ...] -> [B, T, width]. Embeddings start
    standard normal, the scale of standardised numbers.
    """

    tables: dict[str, tuple[jax.Array, ...]]  # one [size, embedding] per categorical column
    pictures: dict[str, Picture]
    recurrent: GRU | None
    leaves: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def create(cls, generator: np.random.Generator, spec: Spec, encoder_config: EncoderConfig) -> Encoder:
        """Return embeddings, convolutions and recurrent unit for the leaves of a spec."""
        tables, pictures = {}, {}
        for name, leaf in sorted(spec.observation.items()):
            if isinstance(leaf, Codes):
                drawn = [generator.standard_normal((size, encoder_config.embedding)) for size in leaf.sizes]
                tables[name] = tuple(float32(table) for table in drawn)
            elif isinstance(leaf, Image):
                pictures[name] = Picture.create(generator, leaf, encoder_config)
        recurrent = None
        if encoder_config.recurrent_size is not None:
            recurrent = GRU.create(
                generator,
                EncoderConfig(encoder_config.embedding, encoder_config.picture_width).size(spec),
                encoder_config.recurrent_size,
            )
        return cls(tables, pictures, recurrent, tuple(sorted(spec.observation)))

    def __call__(self, observation: Seen, real: jax.Array | None = None) -> jax.Array:
        if isinstance(observation, jax.Array):
            return observation
        seen = self.leaf_features(observation)
        if self.recurrent is None:
            return seen
        if real is None:
            raise TypeError("a recurrent network reads windows. fix: pass real [B, T]")
        return self.recurrent.unroll(seen, real)

    def leaf_features(self, observation: Observation) -> jax.Array:
        """Return features [..., features] of the current observation, without the recurrent unit."""
        parts: list[jax.Array] = []
        for name in self.leaves:
            leaf = jnp.asarray(observation[name])
            if name in self.tables:
                parts += [table[leaf[..., c]] for c, table in enumerate(self.tables[name])]
            else:
                parts.append(self.pictures[name](leaf) if name in self.pictures else leaf)
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)

    def both(self, row: Transition) -> tuple[jax.Array, jax.Array]:
        """Return features of observations and next observations; recurrent: the latter from the row's state."""
        if self.recurrent is None or row.last is None:
            return self(row.observation), self(row.next_observation)
        carries = self(row.observation, row.real)
        before = jnp.take_along_axis(carries, row.last[..., None], axis=1)
        return carries, self.recurrent(before, self.leaf_features(row.next_observation))

    def follow(self, observation: Observation, carry: jax.Array, first: jax.Array) -> jax.Array:
        """Return the carries [B, T, width] of segments, from carry [B, width]; `first` [B, T] resets."""
        return self._unit().follow(carry, self.leaf_features(observation), first)

    def further(self, carries: jax.Array, observation: Observation) -> jax.Array:
        """Return the carries [B, T, width] one step later, after the next observation of each."""
        return self._unit()(carries, self.leaf_features(observation))

    def _unit(self) -> GRU:
        if self.recurrent is None:
            raise TypeError("a feed-forward network reads steps, not segments. fix: set recurrent_size")
        return self.recurrent

    def initial_state(self, batch: int) -> jax.Array | None:
        """Return the initial recurrent state [B, width], or None for a feed-forward network."""
        return None if self.recurrent is None else self.recurrent.initial_state(batch)

    def step(self, observation: Observation, carry: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
        """Return features of one more observation [B, ...], and the new recurrent state."""
        seen = self.leaf_features(observation)
        if self.recurrent is None or carry is None:
            return seen, None
        carried = self.recurrent(carry, seen)
        return carried, carried


def now(network: Any, row: Transition) -> Seen:
    """Encode the observations once: features for our networks, the observations for others."""
    encoder = getattr(network, "encoder", None)
    return encoder(row.observation, row.real) if isinstance(encoder, Encoder) else row.observation


def after(network: Any, row: Transition) -> Seen:
    """Encode the next observations once; with a recurrent unit, each from the previous step's state."""
    encoder = getattr(network, "encoder", None)
    return encoder.both(row)[1] if isinstance(encoder, Encoder) else row.next_observation
