"""Custom networks from Equinox's parts, for observations of mixed leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.networks.actors import Categorical, Gaussian
from tidelog.support import allow
from tidelog.types import Codes, Discrete


class Own(eqx.Module):
    """An eqx.nn.MLP on all leaves in one row, codes one-hot; another input is appended."""

    net: eqx.nn.MLP
    sizes: tuple = eqx.field(static=True)  # (leaf, sizes of its codes) pairs; no sizes: numbers
    choices: int = eqx.field(static=True)  # discrete actions; 0: continuous ones

    def run(self, observation, *more):
        parts = []
        for name, sizes in self.sizes:
            parts += [jax.nn.one_hot(observation[name][:, c], size) for c, size in enumerate(sizes)]
            parts += [] if sizes else [observation[name]]
        return jax.vmap(self.net)(jnp.concatenate([*parts, *more], axis=-1))


class OwnValue(Own):
    def __call__(self, observation):
        return self.run(observation)[:, 0]


class OwnCritic(Own):
    def __call__(self, observation, action):
        return self.run(observation, jax.nn.one_hot(action, self.choices) if self.choices else action)[:, 0]


class OwnRatings(Own):
    def all_actions(self, observation):
        return self.run(observation)


class OwnGenerator(eqx.Module):
    """Custom modules for each part; twice as many latents as actions."""

    inward: Own
    outward: Own

    def encode(self, observation, action):
        return tuple(jnp.split(self.inward.run(observation, action), 2, axis=-1))

    def decode(self, observation, latent):
        return jnp.tanh(self.outward.run(observation, latent))


class OwnPerturbation(Own):
    def __call__(self, observation, action):
        return jnp.tanh(self.run(observation, action))


class OwnFlow(Own):
    def __call__(self, observation, point, *time):
        return self.run(observation, point, *time)


class OwnActor(Own):
    def __call__(self, observation, *, mask=None, dropout=None, key=None):
        made = self.run(observation)
        return Categorical(allow(made, mask)) if self.choices else Gaussian(jnp.tanh(made), jnp.zeros(made.shape[-1]))


def _make(kind, spec, key, more, outputs):
    sizes = tuple((name, leaf.sizes if isinstance(leaf, Codes) else ()) for name, leaf in spec.observation.items())
    inputs = more + sum(sum(leaf.sizes) if isinstance(leaf, Codes) else leaf.size for leaf in spec.observation.values())
    net = eqx.nn.MLP(inputs, outputs, width_size=6, depth=1, activation=jnp.tanh, key=key)
    return kind(net, sizes, spec.action.n if isinstance(spec.action, Discrete) else 0)


def _actions(spec):
    return spec.action.n if isinstance(spec.action, Discrete) else spec.action.size


def own_value(spec, key):
    return _make(OwnValue, spec, key, 0, 1)


def own_critic(spec, key):
    return _make(OwnCritic, spec, key, _actions(spec), 1)


def own_ratings(spec, key):
    return _make(OwnRatings, spec, key, 0, _actions(spec))


def own_generator(spec, key):
    size = _actions(spec)
    return OwnGenerator(_make(Own, spec, key, size, 4 * size), _make(Own, spec, key, 2 * size, size))


def own_perturbation(spec, key):
    return _make(OwnPerturbation, spec, key, _actions(spec), _actions(spec))


def own_flow(spec, key):
    return _make(OwnFlow, spec, key, _actions(spec) + 1, _actions(spec))


def own_policy(spec, key):
    return _make(OwnFlow, spec, key, _actions(spec), _actions(spec))


def own_actor(spec, key):
    return _make(OwnActor, spec, key, 0, _actions(spec))
