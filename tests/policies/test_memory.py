"""A recurrent policy: updated step by step, reset where an episode ends, the same along a log."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tidelog import SpecError
from tidelog.policies.batch_inference import act_on_table
from tidelog.runtime.policy import replay_actions, replay_log_probability
from tidelog.training.run import agreement


@pytest.fixture(scope="module")
def log():
    return world("discrete")


@pytest.fixture(scope="module")
def policy(log):
    return tl.fit(tl.BC(hidden=(8, 8), recurrent_size=6, window=4, batch_size=8), log, 5).policy()


def observations(log, rows):
    return {name: leaf[log.position[rows]] for name, leaf in log.observation.items()}


def test_a_memory_is_asked_for_and_has_to_fit(policy, log):
    with pytest.raises(SpecError, match=r"policy\.initial_state\(count\)"):
        policy(observations(log, [0, 1]))
    with pytest.raises(SpecError, match="recurrent state has 3 episodes for 2 observations"):
        policy(observations(log, [0, 1]), state=policy.initial_state(3))
    memoryless = tl.fit(tl.BC(hidden=(8, 8), batch_size=8), log, 1).policy()
    assert not memoryless.is_recurrent
    with pytest.raises(SpecError, match="policy is feed-forward"):
        memoryless.initial_state()


def test_what_was_seen_before_changes_what_is_done(policy, log):
    state, fresh = policy.initial_state(3), policy.initial_state(3)
    policy(observations(log, [0, 1, 2]), state=state)
    assert state.carry.any()
    later = policy.probabilities(observations(log, [3, 4, 5]), state=state)
    assert np.abs(later - policy.probabilities(observations(log, [3, 4, 5]), state=fresh)).max() > 1e-4
    state.forget(np.asarray([True, False, True]))
    assert not state.carry[[0, 2]].any()
    assert state.carry[1].any()


def test_asking_how_likely_does_not_move_the_memory_on(policy, log):
    state = policy.initial_state(2)
    policy.log_probability(observations(log, [0, 1]), log.action[[0, 1]], state=state)
    policy.probabilities(observations(log, [0, 1]), state=state)
    assert not state.carry.any()
    action, propensity = policy.sample_with_propensity(observations(log, [0, 1]), 3, None, state)
    chance = policy.probabilities(observations(log, [0, 1]), state=policy.initial_state(2))
    assert propensity == pytest.approx(chance[np.arange(2), action], rel=1e-5)


def test_along_a_log_is_one_episode_after_another(policy, log):
    mask = None if log.action_mask is None else log.action_mask[log.position]
    seen = observations(log, np.arange(log.steps))
    done = replay_actions(policy, seen, log.starts, mask)
    likely = replay_log_probability(policy, seen, log.action, log.starts, mask)
    for episode in (0, len(log.episodes) - 1):
        state = policy.initial_state(1)
        for row in range(log.starts[episode], log.starts[episode + 1]):
            allowed = None if mask is None else mask[[row]]
            one = policy.log_probability(observations(log, [row]), log.action[[row]], allowed, state)
            assert likely[row] == pytest.approx(one[0], abs=1e-5)
            assert done[row] == policy(observations(log, [row]), allowed, state)[0]
    found = agreement(policy, log)
    assert found["share of equal actions"] == pytest.approx(np.mean(done == log.action))


@pytest.mark.full
def test_rollouts_forget_between_episodes():
    played = tl.collect("treatment", episodes=60, seed=0)
    policy = tl.fit(tl.BC(hidden=(8, 8), recurrent_size=4, window=3, batch_size=16), played, 5).policy()
    collected = tl.collect("treatment", policy, episodes=12, seed=4)
    seen = {name: leaf[collected.position] for name, leaf in collected.observation.items()}
    likely = replay_log_probability(policy, seen, collected.action, collected.starts)
    assert collected.propensity == pytest.approx(np.exp(likely), rel=1e-4)


@pytest.mark.full
def test_a_table_needs_to_say_which_rows_belong_together(tmp_path):
    rows = {"who": ["a", "b", "a", "b"], "when": [1, 1, 0, 0], "x": [0.5, -1.0, 2.0, 0.0], "act": [0, 1, 1, 0]}
    frame = pl.DataFrame(rows).with_columns(r=pl.lit(0.0))
    log = tl.read_log(frame, {"observation": "x", "action": "act", "episode": "who", "step": "when"})
    policy = tl.fit(tl.BC(hidden=(4,), recurrent_size=3, window=2, batch_size=4), log, 3, scale="none").policy()
    frame.write_csv(tmp_path / "rows.csv")
    with pytest.raises(SpecError, match="--columns"):
        act_on_table(policy, tmp_path / "rows.csv")
    (tmp_path / "m.toml").write_text('observation = "x"\naction = "act"\nepisode = "who"\nstep = "when"\n')
    acted = act_on_table(policy, tmp_path / "rows.csv", tmp_path / "m.toml")["action"].to_list()
    state = policy.initial_state(2)
    first = policy({"numeric": np.asarray([[2.0], [0.0]], np.float32)}, state=state)
    second = policy({"numeric": np.asarray([[0.5], [-1.0]], np.float32)}, state=state)
    assert acted == [second[0], second[1], first[0], first[1]]
