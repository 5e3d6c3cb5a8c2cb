"""Arrays in, the same arrays with actions out; errors say what does not fit."""

import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tests.envs.corridor import chain
from tests.training.runs import bc, begin, finish, iql
from tidelog import ConfigError, SpecError, collect
from tidelog.policies.batch_inference import act_on_arrays, write_arrays
from tidelog.runtime.policy import replay_actions


@pytest.fixture
def policy(trained):
    return trained


@pytest.fixture
def arrays(log):
    return {f"observation/{name}": leaf for name, leaf in log.transitions.observation.items()}


def put(tmp_path, arrays):
    write_arrays(arrays, tmp_path / "new.npz")
    return tmp_path / "new.npz"


def test_every_row_gets_the_action_of_its_leaves(policy, log, arrays, tmp_path):
    acted, objects = act_on_arrays(policy, put(tmp_path, {"site": np.arange(log.steps), **arrays}), probabilities=True)
    expected = policy.act(log.transitions.observation)[0]
    assert len(set(expected.tolist())) > 1
    assert acted["action"].tolist() == expected.tolist()
    assert acted["probabilities"].tolist() == policy.probabilities(log.transitions.observation).tolist()
    assert acted["site"].tolist() == list(range(log.steps))
    assert objects == []
    assert "propensity" not in acted
    assert "q" not in acted  # cloning has no critic


def test_whoever_acts_can_log_chances_values_and_the_chance_of_a_sample(log, arrays, tmp_path):
    critic = begin(iql(hidden=(8,)), log).policy(0).with_acting("sample")
    acted, _ = act_on_arrays(critic, put(tmp_path, arrays), seed=1, probabilities=True)
    np.testing.assert_allclose(acted["q"], critic.q_values(log.transitions.observation), rtol=1e-5)
    chances = acted["probabilities"][np.arange(log.steps), acted["action"]]
    np.testing.assert_allclose(acted["propensity"], chances, rtol=1e-5)


def test_what_was_written_and_rewarded_is_a_log_again(tmp_path):
    log = collect(chain(4), episodes=6, seed=0)
    policy = finish(begin(bc(), log)).policy()
    policy.acting = "sample"
    (leaf,) = log.transitions.observation.values()
    path = put(tmp_path, {"observation": leaf, "episode": log.episode})
    acted, _ = act_on_arrays(policy, path, seed=3)
    again, _ = act_on_arrays(policy, path, seed=3)
    assert acted["action"].tolist() == again["action"].tolist()
    chances = policy.probabilities(log.transitions.observation)[np.arange(log.steps), acted["action"]]
    assert acted["propensity"] == pytest.approx(chances, rel=1e-5)
    write_arrays(acted | {"reward": log.reward, "terminated": log.terminated}, tmp_path / "acted.npz")
    reread = tl.read_log(tmp_path / "acted.npz")
    assert reread.action.tolist() == acted["action"].tolist()
    assert reread.propensity == pytest.approx(acted["propensity"])


def test_a_recurrent_policy_follows_episodes_in_any_order(tmp_path):
    log = world("discrete")
    policy = tl.fit(tl.BC(hidden=(8, 8), recurrent_size=6, window=4, batch_size=8), log, 5).policy()
    seen = {name: leaf[log.position] for name, leaf in log.observation.items()}
    mask = None if log.action_mask is None else log.action_mask[log.position]
    expected = replay_actions(policy, seen, log.starts, mask)
    shuffled = np.random.default_rng(0).permutation(log.steps)
    arrays = {f"observation/{name}": leaf[shuffled] for name, leaf in seen.items()}
    arrays |= {} if mask is None else {"action_mask": mask[shuffled]}
    with pytest.raises(SpecError, match=r"recurrent, but .* no array 'episode'"):
        act_on_arrays(policy, put(tmp_path, arrays))
    arrays |= {"episode": log.episode[shuffled], "step": log.step[shuffled]}
    acted, _ = act_on_arrays(policy, put(tmp_path, arrays))
    assert acted["action"].tolist() == expected[shuffled].tolist()
    with pytest.raises(ConfigError, match="probabilities: not available for a recurrent policy"):
        act_on_arrays(policy, put(tmp_path, arrays), probabilities=True)


@pytest.mark.parametrize(("change", "words"), [
    (lambda a: {"observation": a["observation/numeric"]}, "the arrays observation/numeric, observation/cat"),
    (lambda a: {}, "has no arrays: expected"),
    (lambda a: {"obs": a["observation/numeric"], "acts": np.zeros(3)}, "fix: `tidelog log convert --data .*, then"),
    (lambda a: {name: leaf[:0] for name, leaf in a.items()}, "has no rows"),
    (lambda a: a | {"observation/numeric": a["observation/numeric"][:-1]}, r"different numbers of rows \(numeric"),
    (lambda a: a | {"episode": np.zeros(2)}, r"different numbers of rows \(.*episode 2"),
    (lambda a: a | {"observation/numeric": a["observation/numeric"][:, :1]}, "'numeric' has shape"),
    (lambda a: a | {"observation/numeric": np.nan * a["observation/numeric"]}, "missing or infinite in row 0"),
])  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(change, words, policy, arrays, tmp_path):
    with pytest.raises(SpecError, match=words):
        act_on_arrays(policy, put(tmp_path, change(arrays)))


def test_masks_are_needed_and_obeyed(tmp_path):
    log = world("discrete")
    if log.action_mask is None:
        pytest.skip("this world has no masks")
    policy = tl.fit(tl.BC(hidden=(8, 8), batch_size=8), log, 1).policy()
    arrays = {f"observation/{name}": leaf[log.position] for name, leaf in log.observation.items()}
    with pytest.raises(SpecError, match="fix: add an array 'action_mask'"):
        act_on_arrays(policy, put(tmp_path, arrays))
    mask = log.action_mask[log.position]
    acted, _ = act_on_arrays(policy, put(tmp_path, arrays | {"action_mask": mask}))
    assert mask[np.arange(log.steps), acted["action"]].all()
