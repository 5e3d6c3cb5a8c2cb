import sys
from collections import Counter

import numpy as np
import pytest

from tests.envs.corridor import chain
from tidelog.envs.protocol import BatchObservation, Outcome, play
from tidelog.envs.tabular import PointMass, TabularEnvironment
from tidelog.errors import ConfigError
from tidelog.types import Discrete, Spec, Vector


class Counting:
    """Copy `w` plays episodes of the given lengths in turn; it shows (copy, episode of the copy, step)."""

    name = "counting"

    def __init__(self, lengths):
        self.lengths, self.count = lengths, len(lengths)
        self.spec = Spec({"observation": Vector(3)}, Discrete(2), masked=True)

    def reset(self, seed):
        self.episode, self.age = np.zeros(self.count, int), np.zeros(self.count, int)
        return self.shown()

    def shown(self):
        where = np.stack([np.arange(self.count), self.episode, self.age], 1).astype(np.float32)
        return BatchObservation({"observation": where}, np.stack([self.age >= 0, self.age % 2 == 0], 1))

    def step(self, action):
        self.age += 1
        following = self.shown()
        limit = np.array([own[e % len(own)] for own, e in zip(self.lengths, self.episode, strict=True)])
        ended = self.age >= limit
        self.episode[ended] += 1
        self.age[ended] = 0
        return Outcome(np.ones(self.count, np.float32), ended, np.zeros_like(ended), following, self.shown())

    def close(self):
        pass


def idle(observed, generator):
    count = len(observed.observation["observation"])
    return np.zeros(count, int), np.full(count, 0.5)


def test_every_copy_plays_its_allotted_share():
    # Copy 0 plays episodes of 1 step, copy 1 of 10: taking what ends first would take copy 0's.
    played = play(Counting([[1], [10]]), idle, episodes=5)
    assert played.lengths.tolist() == [1, 10, 1, 10, 1]
    assert played.returns.tolist() == [1, 10, 1, 10, 1]


def test_an_episode_that_may_never_end_is_said_once(monkeypatch):
    module = sys.modules[play.__module__]
    monkeypatch.setattr(module, "ENDLESS", 10)
    with pytest.warns(UserWarning, match="goes on after 10 decisions, and may never end") as said:
        play(Counting([[1], [30]]), idle, episodes=4)
    assert len(said) == 1
    monkeypatch.setattr(module, "ENDLESS", 31)
    play(Counting([[1], [30]]), idle, episodes=4)


def test_rows_are_whole_episodes_in_order():
    played = play(Counting([[1, 3], [4, 2], [2]]), idle, episodes=7)
    assert played.lengths.tolist() == [1, 4, 2, 3, 2, 2, 1]
    assert played.episode.tolist() == np.repeat(np.arange(7), played.lengths).tolist()
    copy, episode, age = played.observation["observation"].T
    assert (copy + 3 * episode).tolist() == played.episode.tolist()
    assert age.tolist() == [step for length in played.lengths for step in range(length)]
    np.testing.assert_array_equal(played.next_observation["observation"], np.stack([copy, episode, age + 1], 1))
    assert np.flatnonzero(played.terminated).tolist() == (np.cumsum(played.lengths) - 1).tolist()
    np.testing.assert_array_equal(played.action_mask[:, 1], age % 2 == 0)
    np.testing.assert_array_equal(played.next_action_mask[:, 1], age % 2 == 1)
    assert played.propensity.tolist() == [0.5] * 15


def test_more_copies_than_episodes():
    played = play(Counting([[3]] * 8), idle, episodes=2)
    assert played.lengths.tolist() == [3, 3]
    assert len(played.reward) == 6


@pytest.mark.parametrize(
    ("steps", "expected"), [(1, [1]), (2, [1, 10]), (11, [1, 10]), (12, [1, 10, 1]), (14, [1, 10, 1, 10])]
)
def test_steps_stop_after_the_episode_that_completes_them(steps, expected):
    played = play(Counting([[1], [10]]), idle, steps=steps)
    assert played.lengths.tolist() == expected
    assert len(played.reward) == sum(expected)


def test_without_keeping_only_returns_and_lengths_remain():
    problem, act = chain(4, 0.3), lambda observed, generator: (generator.integers(2, size=5), None)
    kept = play(TabularEnvironment(problem, 5), act, episodes=13, seed=4)
    light = play(TabularEnvironment(problem, 5), act, episodes=13, seed=4, keep=False)
    np.testing.assert_array_equal(kept.returns, light.returns)
    np.testing.assert_array_equal(kept.lengths, light.lengths)
    assert len(light.reward) == 0
    assert light.observation == {}
    assert kept.propensity is None
    assert set(kept.columns()) == {
        *("observation", "next_observation", "action", "reward", "terminated", "truncated"),
        *("episode", "propensity", "action_mask", "next_action_mask", "elapsed"),
    }
    other = play(TabularEnvironment(problem, 5), act, episodes=13, seed=5, keep=False)
    assert Counter(other.lengths.tolist()) != Counter(light.lengths.tolist())


def test_the_actor_draws_by_seed():
    def drawn(seed):
        numbers = []

        def act(observed, generator):
            numbers.append(generator.random())
            return idle(observed, generator)

        play(Counting([[2]]), act, episodes=1, seed=seed)
        return numbers

    assert drawn(1) == drawn(1)
    assert not set(drawn(1)) & set(drawn(2))


@pytest.mark.parametrize("asked", [{}, {"episodes": 3, "steps": 3}, {"episodes": 0}, {"steps": -1}])
def test_asking_for_nothing_or_for_both_is_said(asked):
    with pytest.raises(ConfigError, match=r"play: episodes = .*, steps = .*: expected (exactly one|at least 1)"):
        play(PointMass(1), idle, **asked)


class Waiting(Counting):
    """As `Counting`, but a copy that ended restarts only in the next step, whose action and reward are for nothing."""

    def reset(self, seed):
        self.ended, self.told = np.zeros(self.count, bool), []
        return super().reset(seed)

    def step(self, action):
        waited = self.ended
        self.age = np.where(waited, 0, self.age + 1)
        self.episode += waited
        limit = np.array([own[e % len(own)] for own, e in zip(self.lengths, self.episode, strict=True)])
        self.ended = (self.age >= limit) & ~waited
        seen = self.shown()
        reward = np.where(waited, 1000, 1).astype(np.float32)
        valid = ~waited if waited.any() else None
        return Outcome(reward, self.ended, np.zeros_like(waited), seen, seen, valid)


@pytest.mark.parametrize("how_much", [{"episodes": 7}, {"steps": 12}, {"steps": 13}])
def test_rows_of_no_decision_are_neither_kept_nor_counted(how_much):
    lengths = [[1, 3], [4, 2], [2]]
    expected, played = play(Counting(lengths), idle, **how_much), play(Waiting(lengths), idle, **how_much)
    for name, value in vars(expected).items():
        if name not in ("observation", "next_observation"):
            np.testing.assert_array_equal(getattr(played, name), value, err_msg=name)
    for leaves in ("observation", "next_observation"):
        np.testing.assert_array_equal(getattr(played, leaves)["observation"], getattr(expected, leaves)["observation"])


def test_the_actor_is_told_where_episodes_begin_after_a_restart():
    told = []

    def act(observed, generator):
        told.append((observed.first.tolist(), observed.observation["observation"][:, 2].tolist()))
        return idle(observed, generator)

    play(Waiting([[2], [3]]), act, episodes=4)
    for first, age in told:
        assert all(begins for begins, step in zip(first, age, strict=True) if step == 0)
    assert not any(told[1][0])
