"""Networks of one or two numbers, small enough for training by hand, and three samples for them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tidelog.algorithms.sampling import Batch
from tidelog.networks.actors import Gaussian
from tidelog.types import Continuous, Spec, Transition, Vector

SPEC = Spec({"s": Vector(1)}, Continuous((-1.0,), (1.0,)))


class LineValue(eqx.Module):
    """V(s) = w s."""

    w: jax.Array

    def __call__(self, observation):
        return self.w * observation["s"][:, 0]


class LineCritic(eqx.Module):
    """Q(s, a) = w s + u a."""

    w: jax.Array
    u: jax.Array

    def __call__(self, observation, action):
        return self.w * observation["s"][:, 0] + self.u * action[:, 0]


class LineActor(eqx.Module):
    """A Gaussian of mean p s and standard deviation 1."""

    p: jax.Array

    def __call__(self, observation, *, mask=None, dropout=None, key=None):
        return Gaussian(self.p * observation["s"], jnp.zeros(1))


def plain() -> optax.GradientTransformation:
    """The gradient itself as update direction."""
    return optax.identity()


def make_actor(spec, key):
    return LineActor(jnp.array(0.5))


def make_value(spec, key):
    return LineValue(jnp.array(0.5))


def make_critic(spec, key):
    return LineCritic(jnp.array(1.0), jnp.array(0.0))


def numbers(*rows: Any) -> np.ndarray:
    return np.array(rows, np.float32)


def column(*values: float) -> np.ndarray:
    return numbers(*values)[:, None]


def batch(weight: np.ndarray | None = None) -> Batch:
    """Three samples: s = 1, 2, -1; a = 0.5, 0, 1; r = 1, 0, 2; discount 0.5, 0.5, 0; s' = 2, 1, 3."""
    rows = Transition(
        observation={"s": column(1.0, 2.0, -1.0)},
        action=column(0.5, 0.0, 1.0),
        reward=numbers(1.0, 0.0, 2.0),
        discount=numbers(0.5, 0.5, 0.0),
        next_observation={"s": column(2.0, 1.0, 3.0)},
    )
    return Batch(rows, np.arange(3), weight)
