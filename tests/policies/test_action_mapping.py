"""Names decide: a policy from a log with another order acts in an environment by name."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.policies.permuted import permuted
from tests.training.runs import bc, begin
from tidelog import SpecError, read_log, rollout
from tidelog.envs import make, play
from tidelog.policies.rollout import MappedPolicy
from tidelog.types import Codes, Continuous, Discrete, Spec, Vector


@pytest.fixture(scope="module")
def policy(log):
    """An untrained policy of a log with another order."""
    return begin(bc(hidden=(16, 16)), permuted(log)).policy(0)


@pytest.fixture(scope="module")
def seen(log):
    return log.transitions.observation


@pytest.fixture(scope="module")
def by_name(log, seen):
    """Return the same observations by name, without positions."""
    numeric, codes = log.spec.observation["numeric"], log.spec.observation["categorical"]
    words = np.asarray(codes.vocabularies[0])[seen["categorical"][:, 0]]
    return dict(zip(numeric.names, seen["numeric"].T, strict=True)) | {"kidneys": words}


def words(spec, action):
    return np.asarray(spec.action.names)[action]


def test_a_policy_of_a_table_acts_in_an_environment_without_names():
    rows = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    frame = pl.DataFrame({f"x{k}": rows[:, k] for k in range(4)} | {"a": np.arange(60) % 2, "r": rows[:, 0]})
    log = read_log(frame, {"observation": ["x0", "x1", "x2", "x3"], "action": "a", "reward": "r", "terminated": True})
    policy = begin(bc(hidden=(8,)), log).policy(0)
    world = make("CartPole-v1", 1).spec
    assert (set(policy.spec.observation), set(world.observation)) == ({"numeric"}, {"observation"})
    np.testing.assert_array_equal(
        MappedPolicy(policy, world).act({"observation": rows}), policy.act({"numeric": rows})[0]
    )
    assert rollout(policy, "CartPole-v1", 2).shape == (2,)
    with pytest.raises(SpecError, match="has the observations"):
        MappedPolicy(policy, Spec({"observation": Vector(3)}, world.action))


def test_the_same_words_are_acted_on_by_the_same_words(policy, log, seen, by_name):
    aligned = MappedPolicy(policy, log.spec)
    wanted = policy(by_name).labels
    assert len(set(wanted)) > 1
    np.testing.assert_array_equal(words(log.spec, aligned.act(seen)), wanted)
    untranslated = words(log.spec, policy({name: leaf.copy() for name, leaf in seen.items()}).codes)
    assert (untranslated != wanted).any()


def test_probabilities_belong_to_the_environments_actions(policy, log, seen, by_name):
    found = MappedPolicy(policy, log.spec).probabilities(seen)
    wanted = policy.probabilities(by_name)
    for place, name in enumerate(log.spec.action.names):
        np.testing.assert_allclose(found[:, place], wanted[:, policy.spec.action.names.index(name)], rtol=1e-6)


def test_masks_forbid_the_environments_actions(policy, log, seen):
    rng = np.random.default_rng(0)
    mask = rng.random((log.steps, 6)) < 0.4
    mask[np.arange(log.steps), rng.integers(0, 6, log.steps)] = True
    aligned = MappedPolicy(policy, log.spec)
    each = np.arange(log.steps)
    assert mask[each, aligned.act(seen, mask)].all()
    action, propensity = aligned.sample(seen, mask, 3)
    assert mask[each, action].all()
    chances = aligned.probabilities(seen, mask)
    assert (chances[~mask] == 0).all()
    np.testing.assert_allclose(propensity, chances[each, action], rtol=1e-5)


def test_play_by_position_is_play_by_name(policy, log):
    numeric, codes = log.spec.observation["numeric"], log.spec.observation["categorical"]

    def by_name(observed, generator):
        told = dict(zip(numeric.names, observed.observation["numeric"].T, strict=True))
        told["kidneys"] = np.asarray(codes.vocabularies[0])[observed.observation["categorical"][:, 0]]
        return np.asarray([log.spec.action.names.index(word) for word in policy(told)]), None

    wanted = play(make("treatment", 16), by_name, 40, seed=3).returns
    np.testing.assert_array_equal(rollout(policy, "treatment", 40, seed=3), wanted)


def leaf(log, **changes):
    return replace(log.spec, observation={**log.spec.observation, **changes})


def test_what_cannot_be_matched_is_refused(log):
    policy = begin(bc(), log).policy()
    numeric, codes = log.spec.observation["numeric"], log.spec.observation["categorical"]
    for spec, message in (
        (replace(log.spec, observation={"numeric": numeric}), r"has the observations \['numeric'\], the policy"),
        (leaf(log, numeric=Vector(3)), "'numeric' is Vector of width 3 in the ward: expected Vector"),
        (leaf(log, numeric=Codes((2,) * 4)), "'numeric' is Codes of width 4"),
        (leaf(log, numeric=Vector(4, (*numeric.names[:3], "day"))), "only the ward has day, hour"),
        (leaf(log, categorical=replace(codes, vocabularies=(("healthy", "failed"),))), "'kidneys' can.*`vocabularies`"),
        (leaf(log, categorical=Codes((3,))), "'categorical' has 3 codes in the ward, the policy 2"),
        (replace(log.spec, action=Discrete(5)), r"the ward has the actions Discrete\(n=5.*the policy Discrete\(n=6"),
        (replace(log.spec, action=Discrete(6, tuple("abcdef"))), "actions: only .* the ward has a, b, c, d, e"),
        (replace(log.spec, action=Continuous((0.0,), (1.0,))), "the ward has the actions Continuous"),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=message):
            MappedPolicy(policy, spec, "the ward")
    fewer = leaf(log, categorical=Codes((1,), codes.names, (("impaired",),)))
    shown = {"numeric": np.zeros((2, 4), np.float32), "categorical": np.zeros((2, 1), np.int32)}
    wanted = policy({"numeric": shown["numeric"], "categorical": [["impaired"]] * 2})
    np.testing.assert_array_equal(MappedPolicy(policy, fewer).act(shown), wanted.codes)
    MappedPolicy(policy, replace(log.spec, action=Discrete(6)))  # no names: positions


def test_bounds_of_the_log_must_lie_within_the_environments():
    spec = Spec({"observation": Vector(1)}, Continuous((-2.0,), (2.0,)))

    class Stub:
        def __init__(self, low, high):
            self.spec = replace(spec, action=Continuous((low,), (high,)))

    MappedPolicy(Stub(-2.0, 1.0), spec)
    for low, high in ((-2.5, 1.0), (-1.0, 2.5)):
        with pytest.raises(
            SpecError, match=r"exceed the bounds of the environment.*set the bounds when you read the log"
        ):
            MappedPolicy(Stub(low, high), spec)
