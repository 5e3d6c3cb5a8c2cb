"""A rollout in a functional environment: what followed the last decision is the end of its own episode."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode

from tests.algorithms.players import tiny
from tests.envs.test_vector import Tickers
from tidelog.envs import make
from tidelog.envs.functional import CopyStep
from tidelog.training.collect import Host, initial_collection_state, rollout
from tidelog.types import Discrete, Spec, Vector

COPIES, STEPS = 3, 20


@dataclass(frozen=True)
class Clock:
    """It shows the time, which starts at 0; an episode ends at 4 where its copy is odd, and is cut at 6 where even."""

    name: ClassVar[str] = "clock"
    spec: ClassVar[Spec] = Spec({"observation": Vector(2)}, Discrete(2), masked=True)

    def start(self, key):
        return jnp.int32(0), jax.random.randint(key, (), 0, 2)

    def observe(self, world):
        return {"observation": jnp.stack(world).astype(jnp.float32)}

    def mask(self, world):
        return jnp.array([True, False]) ^ (world[0] % 2 == 1)  # even times allow 0, odd times 1

    def step(self, world, action, key):
        time, odd = world[0] + 1, world[1] == 1
        return CopyStep((time, world[1]), jnp.float32(1.0), odd & (time == 4), ~odd & (time == 6))


def test_what_followed_is_the_last_observation_of_its_own_episode():
    source, h = Clock(), tiny()
    params = h.policy_params(h.init(source.spec, jax.random.key(0), 10))
    names = ("observation", "mask", "following", "following_mask")

    @eqx.filter_jit
    def play(params, key):
        begun = initial_collection_state(source, COPIES, key)
        return rollout(source, h, params, begun, key, STEPS, names)[1]

    columns = jax.tree.map(np.asarray, play(params, jax.random.key(1)))
    time, odd = (columns["observation"]["observation"][..., i] for i in (0, 1))
    after = columns["following"]["observation"]
    np.testing.assert_array_equal(after[..., 0], time + 1)
    np.testing.assert_array_equal(after[..., 1], odd)
    np.testing.assert_array_equal(columns["terminated"], (odd == 1) & (time == 3))
    np.testing.assert_array_equal(columns["truncated"], (odd == 0) & (time == 5))
    ended = columns["terminated"] | columns["truncated"]
    np.testing.assert_array_equal(time[:, 1:], np.where(ended, 0, time + 1)[:, :-1])
    np.testing.assert_array_equal(columns["mask"][..., 1], time % 2 == 1)
    np.testing.assert_array_equal(columns["following_mask"][..., 1], time % 2 == 0)
    assert columns["terminated"].any()
    assert columns["truncated"].any()


def test_rows_that_only_restart_a_single_copy_are_left_out():
    """The episodes of one copy have two steps; the row after each of them restarts it, and is no decision."""
    environment = make(Tickers(AutoresetMode.NEXT_STEP, lengths=(2,)), 1)
    h = tiny(num_envs=1, minibatches=1)
    params = h.policy_params(h.init(environment.spec, jax.random.key(0), 10))
    columns, _ = Host(environment, 0, False).rollout(h, params, jax.random.key(1), 0, 6)
    assert columns["valid"].all()
    assert columns["observation"]["observation"][0, :, 1:].tolist() == [[e, t] for e in range(3) for t in range(2)]
    assert columns["reward"].tolist() == [[1, 2, 11, 12, 21, 22]]
