"""Estimated propensities: near the truth where it is known, calibrated, never from the episode they are about."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

import tidelog as tl
from benchmarks.icu_sepsis import icu_sepsis
from tests.ope.cases import QUICK, Told
from tests.ope.played import played, treated
from tests.shared import shared
from tidelog import ConfigError, LogError, SpecError
from tidelog.data.log import States, number_observations
from tidelog.envs import play
from tidelog.envs.tabular import PointMass
from tidelog.envs.treatment import clinician
from tidelog.ope.evidence import episode_folds, without
from tidelog.ope.propensities import (
    best_temperature,
    clone_by_counts,
    clone_by_network,
    propensities_of,
    tempered,
)
from tidelog.types import MultiDiscrete


@pytest.fixture(scope="module")
def log():
    return treated()


def test_recorded_propensities_are_used_and_all_actions_estimated_beside_them(log):
    found = propensities_of(log, episode_folds(log, 2, 0), states=number_observations(log))
    assert not found.estimated
    assert (found.logged == log.propensity).all()
    assert found.all_actions.shape == (log.steps, 6)
    mine = np.arange(log.steps) * 2.0 + 1.0
    assert (propensities_of(log, episode_folds(log, 2, 0), mine, states=number_observations(log)).logged == mine).all()


def test_counted_propensities_are_near_the_clinicians(log):
    found = propensities_of(log, episode_folds(log, 5, 0), "estimated", states=number_observations(log))
    assert found.estimated
    assert np.abs(found.logged - log.propensity).mean() < 0.06  # 0 of 33 other seeds fail
    assert found.all_actions.sum(1) == pytest.approx(1.0)
    assert (found.all_actions > 0).all()


@pytest.mark.full
def test_cloned_propensities_are_near_the_clinicians_and_calibrated(log):
    """Among actions given a chance of about p, a share of about p was taken."""
    found = propensities_of(log, episode_folds(log, 2, 0), "estimated")
    assert np.abs(found.logged - log.propensity).mean() < 0.06  # 0 of 3 other seeds fail, here and below
    taken, chance = np.eye(6)[log.action].ravel(), found.all_actions.ravel()
    of = np.digitize(chance, [0.05, 0.1, 0.3, 0.5, 0.7])
    gaps = np.abs(np.bincount(of, taken) - np.bincount(of, chance)) / len(taken)
    assert gaps.sum() < 0.015


@pytest.mark.sample("True")
@pytest.mark.parametrize("tabular", [True, False])
def test_an_episodes_actions_do_not_change_its_own_propensities(log, tabular):
    some = log.take_episodes(range(60))
    states, folds = number_observations(some), episode_folds(some, 2, 0)
    action = np.array(some.action)
    action[: some.starts[1]] = (action[: some.starts[1]] + 1) % 6
    changed = replace(some, action=action)
    one, two = (propensities_of(x, folds, "estimated", states=states if tabular else None) for x in (some, changed))
    own = folds[some.episode] == folds[0]
    assert (one.all_actions[own] == two.all_actions[own]).all()
    assert not np.allclose(one.all_actions[~own], two.all_actions[~own])


def test_one_over_a_counted_propensity_is_right_on_average():
    """`(n + 1) / (k + 1)` has the mean `(1 - (1 - p)^(n + 1)) / p`, in states where action 0 has chance 0.2 or 0.8."""
    rng, many = np.random.default_rng(0), 60_000
    chance = rng.choice([0.2, 0.8], many)
    state = np.tile(np.repeat(np.arange(many), 10), 2)  # ten learnt times a state, and ten others
    action = (rng.random(len(state)) > chance[state]).astype(int)
    log = tl.Log.from_arrays(observation=state, action=action, reward=np.zeros(len(state)), terminated=True, actions=2)
    clone = clone_by_counts(log, States(state, many), np.arange(10 * many))
    weights = np.where(action == 0, chance[state] / clone.logged, 0.0)[10 * many :]
    for p in (0.2, 0.8):  # 7 standard errors: right counts fail for 1 in 10^11 seeds
        assert weights[chance[state[10 * many :]] == p].mean() == pytest.approx(p * (1 - (1 - p) ** 11), abs=0.008)


@pytest.fixture(scope="module")
def clinicians(log):
    """The clinician judged by the clinician's own log, with recorded and with estimated propensities."""
    return {how: tl.judge(Told(clinician()), log, propensities=how, limits=QUICK) for how in ("logged", "estimated")}


@pytest.mark.full
def test_the_clinician_judged_by_estimated_propensities_is_supported_and_no_different(clinicians):
    found = clinicians["estimated"]
    assert found.context["propensities_by"] == "counts"
    assert "by counting the behaviour policy's actions" in found.paragraph
    assert clinicians["logged"].context["propensities_by"] is None
    assert found.decision == "no difference shown", found.reasons
    assert found.difference.low < 0.0 < found.difference.high  # 0 of 33 other seeds fail, above and below
    assert found.support.effective_sample_size > 0.6 * found.episodes


@pytest.mark.full
def test_the_expert_of_icu_sepsis_judged_against_itself_with_estimated_propensities():
    """715 states, 25 actions, episodes of up to a hundred steps: by ratios of visits."""
    problem, expert = icu_sepsis(shared("data/icu_sepsis/dynamics.npz"))
    expert = np.where(problem.final[:, None], 1.0 / problem.actions, expert)
    log = played(problem, expert, 5_000, 3)

    class Expert:
        def probabilities(self, seen, mask=None):
            return expert[np.asarray(seen["observation"])[:, 0]]

    found = tl.judge(Expert(), log, propensities="estimated", limits=QUICK)
    assert found.decision == "no difference shown", found.reasons
    assert found.difference.low < 0.0 < found.difference.high  # 0 of 3 other seeds fail, here and above


def test_counts_are_drawn_towards_shares_of_all_by_what_predicts_best():
    """One state like all others: only the shares of all matter. States of their own: hardly at all."""
    rng = np.random.default_rng(0)

    def made(chances):
        state = np.repeat(np.arange(50), 1_600)
        action = (rng.random(80_000) > chances[state]).astype(int)
        log = tl.Log.from_arrays(observation=state, action=action, reward=np.zeros(80_000), terminated=True, actions=2)
        return clone_by_counts(log, States(state, 50), np.arange(80_000)).probabilities[::1_600, 0], action

    alike, action = made(np.full(50, 0.3))
    assert alike == pytest.approx(1 - action.mean(), abs=0.03)  # 0 of 400 other seeds fail, here and below
    chances = rng.choice([0.02, 0.98], 50)
    apart, _ = made(chances)
    assert np.abs(apart - chances).mean() < 0.05


@pytest.mark.full
def test_masked_actions_have_no_chance(log):
    some = log.take_episodes(range(40))
    mask = np.ones((len(some.observation["numeric"]), 6), bool)
    mask[some.position, (some.action + 1) % 6] = False
    masked = replace(some, action_mask=mask, spec=replace(some.spec, masked=True))
    for clone in (
        clone_by_counts(masked, number_observations(masked), np.arange(20)),
        clone_by_network(masked, np.arange(20), 0),
    ):
        assert (clone.probabilities[~mask] == 0).all()
        assert clone.probabilities.sum(1) == pytest.approx(1.0)
        assert (clone.logged > 0).all()


def test_the_temperature_undoes_overconfidence():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((20_000, 4))
    action = (softmax(logits, axis=1).cumsum(1) > rng.random((20_000, 1))).argmax(1)
    # 3.5 deviations of 40 other seeds: 3 in 10,000 fail
    assert best_temperature(3.0 * logits, action) == pytest.approx(3.0, rel=0.05)
    assert tempered(3.0 * logits, 3.0) == pytest.approx(softmax(logits, axis=1), abs=1e-5)


@pytest.mark.full
def test_continuous_propensities_are_near_those_of_the_behavior():
    """The behaviour policy: normal around half way back, spread 0.3; actions far within the bounds."""
    env, rng = PointMass(50), np.random.default_rng(0)

    def act(seen, _):
        middle = -0.5 * seen.observation["observation"]
        action = middle + 0.3 * rng.standard_normal((50, 1))
        density = np.exp(-0.5 * np.square((action - middle) / 0.3)) / (0.3 * np.sqrt(2 * np.pi))
        return action.astype(np.float32), density[:, 0]

    found = play(env, act, 150)
    log = tl.Log.from_arrays(**found.columns(), bounds=(-4.0, 4.0))
    clones = propensities_of(log, episode_folds(log, 2, 0), "estimated")
    assert np.mean(np.abs(np.log(clones.logged / log.propensity))) < 0.15  # 0 of 3 other seeds fail, here and below
    sampled = clones.clones[0].target(log, sample=True)
    assert np.std(sampled.actions - clones.clones[0].mode[:, None]) == pytest.approx(0.3, abs=0.05)
    assert clones.clones[0].target(log, sample=False, bandwidth=0.1).bandwidth == 0.1


def test_what_cannot_be_used_is_refused(log):
    folds, states = episode_folds(log, 2, 0), number_observations(log)
    with pytest.raises(ConfigError, match="propensities = 'logd'"):
        propensities_of(log, folds, "logd", states=states)
    with pytest.raises(SpecError, match="this log has no propensities"):
        propensities_of(replace(log, propensity=None), folds, "logged", states=states)
    with pytest.raises(ConfigError, match="one for each step"):
        propensities_of(log, folds, np.ones(3), states=states)
    with pytest.raises(SpecError, match="the propensity of step 2 is 0"):
        propensities_of(log, folds, np.where(np.arange(log.steps) == 2, 0.0, 1.0), states=states)
    several = replace(
        log, spec=replace(log.spec, action=MultiDiscrete((6,))), action=log.action[:, None], propensity=None
    )
    with pytest.raises(SpecError, match="several simultaneous choices"):
        propensities_of(several, folds)


def test_folds_are_of_episodes_equal_in_size_and_the_same_for_a_seed(log):
    folds = episode_folds(log, 7, 3)
    counts = np.bincount(folds)
    assert counts.max() - counts.min() <= 1
    assert (folds == episode_folds(log, 7, 3)).all()
    assert (folds != episode_folds(log, 7, 4)).any()
    assert (np.sort(np.concatenate([without(folds, 2), np.flatnonzero(folds == 2)])) == np.arange(len(folds))).all()
    with pytest.raises(ConfigError, match="folds = 1"):
        episode_folds(log, 1, 0)
    with pytest.raises(LogError, match="this log has 3 episodes: expected at least"):
        episode_folds(log.take_episodes(range(3)), 4, 0)


def test_folds_keep_clusters_whole_and_are_those_of_episodes_where_each_is_its_own(log):
    episodes = len(log.episode_ids)
    clustered = replace(log, cluster=(np.arange(episodes) // 3).astype(np.int32)[log.episode])
    folds = episode_folds(clustered, 5, 0)
    assert all(len(set(folds[clustered.clusters == one])) == 1 for one in range(clustered.clusters.max() + 1))
    counts = np.bincount(folds[np.unique(clustered.clusters, return_index=True)[1]])
    assert counts.max() - counts.min() <= 1
    alone = replace(log, cluster=np.asarray(log.episode))
    assert (episode_folds(alone, 5, 0) == episode_folds(log, 5, 0)).all()
    with pytest.raises(LogError, match="this log has 2 clusters: expected at least"):
        episode_folds(clustered.take_episodes(range(6)), 3, 0)


@pytest.mark.full
def test_a_log_of_one_cluster_holds_none_out_of_its_clone(log, monkeypatch):
    monkeypatch.setattr("tidelog.ope.propensities.FEWEST", 20)
    monkeypatch.setattr("tidelog.ope.propensities.MOST", 20)
    one = replace(log, cluster=np.zeros(log.steps, np.int32))
    clone = clone_by_network(one, np.arange(4), 0)
    assert np.isfinite(clone.logged).all()
