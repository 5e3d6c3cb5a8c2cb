"""IQL with a value network of your own: any Equinox module that maps a batch of observations to [B]."""

import equinox as eqx
import jax
import numpy as np

import tidelog as tl


class Linear(eqx.Module):
    """V(s) as a linear function of one numeric leaf."""

    weight: jax.Array
    bias: jax.Array

    def __call__(self, observation):
        """Leaves [B, O] -> [B]."""
        return observation["observation"] @ self.weight + self.bias


def make_value(spec: object, key: jax.Array) -> Linear:
    """A fresh module for the log's spec."""
    return Linear(0.1 * jax.random.normal(key, (3,)), jax.numpy.zeros(()))


generator = np.random.default_rng(0)
observation = generator.standard_normal((2_000, 3)).astype(np.float32)
action = generator.uniform(-1, 1, (2_000, 1)).astype(np.float32)
reward = -np.square(action[:, 0] - 0.5 * observation[:, 0])
log = tl.Log.from_arrays(observation=observation, action=action, reward=reward, terminated=True, bounds=(-1.0, 1.0))
run = tl.fit(tl.IQL(value_network=make_value, hidden=(32, 32)), log, steps=300)
print({name: round(value, 3) for name, value in run.metrics[-1].items()})
