"""The vault: what is seen, and that its optimum is what counting steps says."""

from collections import deque

import numpy as np
import pytest

from benchmarks.vault import BLUE, DOOR, GOAL, LIMIT, MOVES, NICHES, NOTHING, RED, Scene, after, image, starts, vault
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
