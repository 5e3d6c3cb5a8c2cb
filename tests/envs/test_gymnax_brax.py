"""gymnax and brax by look-alikes, written from their sources (gymnax 1.0.1, brax 0.14.2)."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.gymnax_brax import FromBrax, FromGymnax
from tidelog.envs import make, play
from tidelog.types import Continuous, Discrete, Vector


class Space(NamedTuple):  # gymnax's spaces have these attributes
    low: Any = None
    high: Any = None
    shape: tuple = ()


@dataclass
class Choice:
    n: int


class Params(NamedTuple):
    max_steps_in_episode: int = 4

    def replace(self, **changes):
        return self._replace(**changes)


class Walk(NamedTuple):
    place: jax.Array
    time: jax.Array


class Gymnax:
    """A walk to 3 by actions of 0 or 1, with a time limit."""

    name = "Walk-v0"
    default_params = Params()

    def observation_space(self, params):
        return Space(0, 9, (2,))

    def action_space(self, params):
        return Choice(2)

    def reset_env(self, key, params):
        state = Walk(jnp.zeros((), jnp.int32), 0)  # gymnax starts its clocks as plain numbers
        return self.shown(state), state

    def shown(self, state):
        return jnp.stack([state.place, state.time]).astype(jnp.float32)

    def is_terminal(self, state, params):
        return state.place == 3

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def step_env(self, key, state, action, params):
        state = Walk(state.place + action, state.time + 1)
        ended = self.is_terminal(state, params)
        return self.shown(state), state, action * 2, ended, {"discount": 1.0 - ended}


def test_getting_there_and_running_out_of_time_are_told_apart():
    environment = make(FromGymnax(Gymnax()), 3)
    environment.reset(0)
    actions = [(1, 1, 1, 0), (0, 0, 0, 0), (0, 1, 1, 1)]
    outcomes = [environment.step(np.array(column)) for column in zip(*actions, strict=True)]
    assert environment.name == "gymnax:Walk-v0"
    assert environment.spec.observation == {"observation": Vector(2)}
    assert environment.spec.action == Discrete(2)
    assert [one.terminated.tolist() for one in outcomes[2:]] == [[True, False, False], [False, False, True]]
    assert [one.truncated.tolist() for one in outcomes[2:]] == [[False, False, False], [False, True, True]]
    assert outcomes[2].reward.tolist() == [2, 0, 2]
    assert outcomes[2].next_observation.observation["observation"].tolist() == [[3, 3], [0, 3], [2, 3]]
    assert outcomes[2].current_observation.observation["observation"].tolist() == [[0, 0], [0, 3], [2, 3]]
    assert outcomes[3].next_observation.observation["observation"].tolist() == [[0, 1], [0, 4], [3, 4]]


@jax.tree_util.register_dataclass
@dataclass
class State:  # brax's has these fields
    pipeline_state: Any
    obs: Any
    reward: jax.Array
    done: jax.Array
    metrics: dict = field(default_factory=dict)
    info: dict = field(default_factory=dict)

    def replace(self, **changes):
        return replace(self, **changes)


class Slide:
    """Moves by its action; beyond 1 it is done. Flags are floats, as brax has them."""

    action_size = 1

    def reset(self, rng):
        zero = jnp.zeros(())
        return State(zero, jnp.stack([zero, zero]), zero, zero, {}, {})

    def step(self, state, action):
        place = state.pipeline_state + action[0]
        done = jnp.where(place > 1, 1.0, 0.0)
        return state.replace(pipeline_state=place, obs=jnp.stack([place, done]), reward=-place, done=done)


class EpisodeWrapper:
    """brax's: sets `done` at the limit and "truncation" unless the world ended then as well."""

    def __init__(self, env, length):
        self.env, self.length, self.action_size = env, length, env.action_size

    def reset(self, rng):
        state = self.env.reset(rng)
        return state.replace(info={"steps": jnp.zeros(()), "truncation": jnp.zeros(())})

    def step(self, state, action):
        moved = self.env.step(state, action)
        steps = state.info["steps"] + 1
        late = steps >= self.length
        info = {"steps": steps, "truncation": jnp.where(late, 1 - moved.done, 0.0)}
        return moved.replace(done=jnp.where(late, 1.0, moved.done), info=info)


@pytest.mark.sample("functional0")
@pytest.mark.parametrize("functional", [FromBrax(Slide(), 3), FromBrax(EpisodeWrapper(Slide(), 3), None)])
def test_brax_is_cut_off_by_the_clock_and_ended_by_the_world(functional):
    environment = make(functional, 3)
    assert environment.name == "brax:Slide"
    assert environment.spec.action == Continuous((-1.0,), (1.0,))
    environment.reset(0)
    outcomes = [environment.step(np.array([[1.0], [0.25], [0.4]])) for _ in range(3)]
    assert [one.terminated.tolist() for one in outcomes] == [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert [one.truncated.tolist()[:2] for one in outcomes] == [[0, 0], [0, 0], [0, 1]]
    np.testing.assert_allclose(outcomes[1].reward, [-2.0, -0.5, -0.8])
    np.testing.assert_allclose(outcomes[1].next_observation.observation["observation"][0], [2, 1])
    np.testing.assert_allclose(outcomes[1].current_observation.observation["observation"][0], [0, 0])
    np.testing.assert_allclose(outcomes[2].next_observation.observation["observation"][:, 0], [1, 0.75, 1.2], rtol=1e-6)
    played = play(environment, lambda observed, _: (np.full((3, 1), 0.1), None), episodes=6)
    assert played.lengths.tolist() == [3] * 6
    assert not played.terminated.any()
