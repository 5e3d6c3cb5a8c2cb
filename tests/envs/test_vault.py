"""The vault: what is seen, and that its optimum is what counting steps says."""

from collections import deque

import jax
import numpy as np
import pytest

from tidelog.envs.protocol import play
from tidelog.envs.registry import functional, make
from tidelog.envs.vault import BLUE, DOOR, GOAL, LIMIT, MOVES, NICHES, NOTHING, RED, Scene, after, image, starts, vault
from tidelog.types import Discrete, Image

ACTIONS = range(len(MOVES))


def fewest(scene):
    """Steps to the goal, by breadth first search over the rules alone."""
    seen, edge = {scene: 0}, deque([scene])
    while edge:
        now = edge.popleft()
        for moved in (after(now, action) for action in ACTIONS):
            if moved.cell == GOAL:
                return seen[now] + 1
            if moved not in seen:
                seen[moved] = seen[now] + 1
                edge.append(moved)
    raise AssertionError("no way")


def test_its_best_value_is_that_of_the_shortest_ways():
    steps = np.asarray([fewest(scene) for scene in starts()])
    assert steps.max() < LIMIT
    for discount in (1.0, 0.99, 0.9):
        best, policy = vault().optimal(discount)
        assert best == pytest.approx((discount ** (steps - 1.0)).mean(), abs=1e-12)
        assert vault().value_of(policy, discount) == pytest.approx(best, abs=1e-12)


def test_chance_seldom_reaches_the_goal_and_the_wrong_key_never():
    problem = vault()
    assert problem.value_of(np.full((problem.states, 4), 0.25)) == pytest.approx(0.0468, abs=5e-4)
    wrong = Scene((2, 1), RED, (), BLUE)
    with pytest.raises(AssertionError, match="no way"):
        fewest(wrong)
    assert after(wrong._replace(cell=(DOOR[0], DOOR[1] - 1)), 3).cell == (DOOR[0], DOOR[1] - 1)
    right = wrong._replace(cell=(DOOR[0], DOOR[1] - 1), held=RED)
    assert after(right, 3).cell == DOOR


def test_the_first_key_is_taken_and_the_other_vanishes():
    scene = Scene((2, 1), RED, (NICHES[1], NICHES[0]))
    assert after(scene, 0) == Scene(NICHES[0], RED, (), BLUE)
    assert after(scene, 2) == scene  # a wall
    assert after(scene, 1) == scene._replace(cell=(3, 1))


def test_every_state_has_a_picture_of_its_own():
    problem = vault()
    assert problem.spec.observation == {"observation": Image(16, 16, 3)}
    assert problem.spec.action == Discrete(4, tuple(MOVES))
    pictures = problem.observations()["observation"]
    assert pictures.dtype == np.uint8
    assert len(np.unique(pictures.reshape(len(pictures), -1), axis=0)) == problem.states == 289
    shown = image(Scene((2, 1), RED, (), NOTHING))
    assert (shown[4:6, 2:4] == 255).all()
    assert (image(Scene((2, 1), RED, (), BLUE)) != shown).any()


@pytest.mark.parametrize("name", ["vault", "jax:vault"])
def test_played_by_the_best_policy_it_is_worth_what_its_arrays_say(name):
    problem = vault()
    table = problem.observations()["observation"].reshape(problem.states, -1)
    place = {row.tobytes(): i for i, row in enumerate(table)}
    best = problem.optimal(0.99)[1][0].argmax(1)

    def act(observed, seed):
        rows = observed.observation["observation"].reshape(len(observed.observation["observation"]), -1)
        return best[[place[row.tobytes()] for row in rows]].astype(np.int32), None

    assert (play(make(name, 8), act, episodes=40, seed=1, keep=False).returns == 1.0).all()


def test_it_goes_on_where_it_was():
    for name in ("vault", "jax:vault"):
        one, other = make(name, 3), make(name, 3)
        one.reset(0)
        for action in (0, 1, 3):
            one.step(np.full(3, action))
        seen = other.restore_state(one.save_state()).observation["observation"]
        for action in (2, 3, 1, 1, 3) * 14:
            first, second = one.step(np.full(3, action)), other.step(np.full(3, action))
            np.testing.assert_array_equal(
                first.current_observation.observation["observation"],
                second.current_observation.observation["observation"],
            )
        assert seen.shape == (3, 16, 16, 3)


def test_the_same_function_is_given_each_time():
    assert functional("jax:vault").problem is vault()
    world = functional("jax:vault")
    seen = jax.jit(lambda key: world.observe(world.start(key)))(jax.random.key(0))
    assert seen["observation"].dtype == np.uint8
