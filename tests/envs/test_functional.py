"""Functional environments are their references; `advance` hides nothing; `HostedCopies` keeps the host's promise."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.envs.corridor import chain
from tidelog.envs import Tabular, make, play
from tidelog.envs.functional import (
    Cart,
    CartPole,
    CopyStep,
    Finite,
    Functional,
    HostedCopies,
    Place,
    Swing,
    look,
)
from tidelog.envs.registry import functional
from tidelog.envs.treatment import treatment
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError
from tidelog.types import Discrete, Spec, Vector


def cart(state):
    return Cart(jnp.asarray(state, jnp.float32), jnp.zeros((), jnp.int32))


def swing(state):
    return Swing(*jnp.asarray(state, jnp.float32), jnp.zeros((), jnp.int32))


@pytest.mark.parametrize(("name", "world"), [("CartPole-v1", cart), ("Pendulum-v1", swing)])
def test_each_step_is_gymnasiums(name, world):
    """5,000 steps, each from gymnasium's own state rounded to float32, so that nothing accumulates."""
    environment, ours = gymnasium.make(name), functional(f"jax:{name}")
    environment.action_space.seed(1)
    environment.reset(seed=1)
    states, actions, wanted = [], [], []
    for _ in range(5000):
        inner = environment.unwrapped
        inner.state = np.asarray(inner.state, np.float32).astype(np.float64)
        states.append(inner.state)
        actions.append(environment.action_space.sample())
        wanted.append(environment.step(actions[-1])[:4])
        if wanted[-1][2] or wanted[-1][3]:
            environment.reset()
    environment.close()
    step = jax.jit(jax.vmap(lambda state, action: ours.step(world(state), action, jax.random.key(0))))
    moved = step(np.array(states, np.float32), np.array(actions))
    seen, reward, terminated, truncated = (np.array(column) for column in zip(*wanted, strict=True))
    close = {"rtol": 2e-6, "atol": 2e-6}
    np.testing.assert_allclose(look(ours, moved.world)[0]["observation"], seen, **close)
    np.testing.assert_allclose(moved.reward, reward, **close)
    np.testing.assert_array_equal(moved.terminated, terminated)
    assert (terminated | truncated).sum() >= 25


@pytest.mark.parametrize(("age", "at_the_limit"), [(498, False), (499, True)])
def test_a_fall_at_the_limit_sets_both_flags_as_gymnasium_does(age, at_the_limit):
    falling = Cart(np.asarray([0.0, 0.0, 0.2, 3.0], np.float32), np.int32(age))
    moved = jax.jit(CartPole().step)(falling, 0, jax.random.key(0))
    assert bool(moved.terminated)
    assert bool(moved.truncated) == at_the_limit
    assert float(moved.reward) == 1.0


def test_pendulum_is_cut_off_after_200_steps_and_never_ends():
    played = play(make("jax:Pendulum-v1", 3), lambda observed, _: (np.full((3, 1), 2.0), None), episodes=6)
    assert played.lengths.tolist() == [200] * 6
    assert played.truncated.sum() == 6
    assert not played.terminated.any()
    assert (played.returns < -300).all()  # 0 of 15 other seeds fail


def arrays_of(finite):
    """The transition, reward and start that a `Finite`'s tables stand for."""
    problem = finite.problem
    rows = problem.states * problem.actions
    transition, reward = np.zeros((2, rows, problem.states))
    chances = np.diff(finite.cumulative.astype(np.float64), axis=1, prepend=0.0)
    for row in range(rows):
        np.add.at(transition[row], finite.successor[row], chances[row])
        reward[row, finite.successor[row]] = finite._reward[row]
    initial = np.zeros(problem.states)
    np.add.at(initial, finite.first[0], np.diff(finite.first_cumulative[0].astype(np.float64), prepend=0.0))
    shape = problem.transition.shape
    return transition.reshape(shape), reward.reshape(shape), initial


@pytest.mark.parametrize("problem", [treatment(), chain(7, 0.3)], ids=["treatment", "chain"])
def test_tables_stand_for_the_arrays(problem):
    transition, reward, initial = arrays_of(Finite(problem))
    np.testing.assert_allclose(transition, problem.transition, atol=1e-6)
    assert ((transition > 0) <= (problem.transition > 0)).all(), "nothing impossible"
    np.testing.assert_array_equal(np.where(transition > 0, reward, 0), np.where(transition > 0, problem.reward, 0))
    np.testing.assert_allclose(initial, problem.initial, atol=1e-6)
    likeness = Tabular(transition / transition.sum(2, keepdims=True), reward, initial / initial.sum(), problem.final)
    random = np.full((problem.states, problem.actions), 1 / problem.actions)
    assert likeness.value_of(random, 0.97) == pytest.approx(problem.value_of(random, 0.97), abs=1e-6)
    assert likeness.optimal(0.97)[0] == pytest.approx(problem.optimal(0.97)[0], abs=1e-6)


def test_drawn_transitions_are_as_frequent_as_the_arrays_say():
    problem, draws = treatment(), 40_000
    finite, generator = functional("jax:treatment"), np.random.default_rng(0)
    states = generator.choice(np.flatnonzero(~problem.final), 40)
    actions = generator.integers(problem.actions, size=40)
    row = jax.vmap(finite.step, (None, None, 0))
    drawn = jax.jit(jax.vmap(row, (0, 0, None)))
    worlds = Place(states.astype(np.int32), np.zeros(40, np.int32))
    moved = drawn(worlds, actions, jax.random.split(jax.random.key(1), draws))
    found = np.stack([np.bincount(own, minlength=problem.states) for own in np.asarray(moved.world.state)]) / draws
    exact = problem.transition[states, actions]
    # right draws fail for 2 in 10,000 seeds: of the 332 frequencies, the rare ones have long tails
    assert np.abs((found - exact) / np.sqrt(np.maximum(exact * (1 - exact), 1e-9) / draws)).max() < 5.5
    assert not found[exact == 0].any()
    np.testing.assert_array_equal(moved.terminated, problem.final[np.asarray(moved.world.state)])
    earned = problem.reward[states[:, None], actions[:, None], np.asarray(moved.world.state)]
    np.testing.assert_array_equal(moved.reward, earned.astype(np.float32))


def test_copies_draw_for_themselves():
    environment = make("jax:treatment", 300)
    begun = np.hstack([*environment.reset(0).observation.values()])
    alike = (begun == begun[0]).all(axis=1)  # the same state and action, and more than one successor
    moved = np.hstack([*environment.step(np.zeros(300, int)).next_observation.observation.values()])
    assert len(np.unique(moved[alike], axis=0)) > 1


def test_horizons_rewards_by_action_and_masks_are_kept():
    base = chain(4)
    allowed = np.array([[False, True]] * 4 + [[True, True]])
    paid = np.arange(10.0).reshape(5, 2)
    problem = Tabular(base.transition, paid, base.initial, base.final, horizon=2, allowed=allowed)
    environment = make(Finite(problem), 2)
    observed = environment.reset(0)
    assert observed.action_mask.tolist() == [[False, True]] * 2
    with pytest.raises(SpecError, match="action 0 is forbidden in copy 1"):
        environment.step(np.array([1, 0]))
    first, second = environment.step(np.ones(2, int)), environment.step(np.ones(2, int))
    assert first.reward.tolist() == [1, 1]
    assert second.reward.tolist() == [3, 3]
    assert second.truncated.all()
    assert not second.terminated.any()
    assert second.next_observation.observation["observation"].tolist() == [[2], [2]]
    assert second.current_observation.observation["observation"].tolist() == [[0], [0]]


class Age(NamedTuple):
    age: jax.Array
    mark: jax.Array


SHOWN = Spec({"observation": Vector(2)}, Discrete(2))


@dataclass(frozen=True)
class Clock:
    """Shows (a random mark of the episode, the step); episodes take `end` steps; `fault` spoils step 3."""

    end: int = 3
    how: str = "truncated"
    fault: str = ""
    name: str = "clock"
    spec: Spec = SHOWN

    def __hash__(self):
        return hash((self.end, self.how, self.fault))

    def start(self, key):
        return Age(jnp.zeros((), jnp.int32), jax.random.uniform(key))

    def observe(self, world):
        wrong = (world.age == 3) & (self.fault == "observation")
        return {"observation": jnp.stack([world.mark, jnp.where(wrong, jnp.nan, world.age)])}

    def mask(self, world):
        return None

    def step(self, world, action, key):
        age = world.age + 1
        ended = age == self.end
        reward = jnp.where((age == 3) & (self.fault == "reward"), jnp.inf, action.astype(jnp.float32))
        return CopyStep(
            Age(age, world.mark), reward, ended & (self.how != "truncated"), ended & (self.how != "terminated")
        )


@pytest.mark.sample("both")
@pytest.mark.parametrize("how", ["terminated", "truncated", "both"])
def test_what_followed_is_kept_apart_from_what_to_act_on(how):
    environment = make(Clock(2, how), 3)
    assert isinstance(environment, HostedCopies)
    assert isinstance(environment.functional, Functional)
    first = environment.reset(0).observation["observation"]
    assert len(set(first[:, 0])) == 3
    environment.step(np.zeros(3, int))
    last = environment.step(np.array([0, 1, 1]))
    assert last.reward.tolist() == [0, 1, 1]
    assert last.valid is None
    assert (last.terminated == (how != "truncated")).all()
    assert (last.truncated == (how != "terminated")).all()
    np.testing.assert_array_equal(last.next_observation.observation["observation"], np.stack([first[:, 0], [2] * 3], 1))
    assert last.current_observation.observation["observation"][:, 1].tolist() == [0, 0, 0]
    assert not set(last.current_observation.observation["observation"][:, 0]) & set(first[:, 0])


@pytest.mark.parametrize(
    ("fault", "words"),
    [("observation", "entry 1 of observation 'observation' is nan"), ("reward", "the reward is inf")],
)
def test_a_failure_names_the_copy_and_the_step(fault, words):
    environment = make(Clock(9, fault=fault), 2)
    environment.reset(0)
    environment.step(np.zeros(2, int))
    environment.step(np.zeros(2, int))
    with pytest.raises(EnvironmentFailure, match=f"clock, copy 0, step 3: {words}"):
        environment.step(np.zeros(2, int))


class Unhashable(Clock):
    __hash__ = None


class Promising(Clock):
    def observe(self, world):
        return {"somewhat": world.mark[None]}


class Wide(Clock):
    def observe(self, world):
        return {"observation": jnp.zeros(3)}


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (Unhashable(), ConfigError, "hashable"),
        (Promising(), SpecError, "somewhat"),
        (Clock(spec=replace(SHOWN, masked=True)), SpecError, "masked"),
        ("jax:Cartpole-v1", ConfigError, "did you mean 'jax:CartPole-v1'"),
        ("jax:", ConfigError, "jax:treatment"),
    ],
)
def test_what_does_not_fit_is_refused(source, error, words):
    with pytest.raises(error, match=words):
        make(source, 2)


def test_observations_of_another_width_and_early_steps_are_said():
    with pytest.raises(EnvironmentFailure, match=r"has shape \(2, 3\): expected \(2, 2\)"):
        make(Wide(), 2).reset(0)
    with pytest.raises(EnvironmentFailure, match="was not reset"):
        make(Clock(), 2).step(np.zeros(2, int))
    with pytest.raises(ConfigError, match="at least 1"):
        make("jax:treatment", 0)
