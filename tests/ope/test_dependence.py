"""Episodes that belong together: sums, errors, folds, and clusters that the log does not name."""

import numpy as np
import pytest

from tests.ope.made import random_log
from tidelog import Limits, Log, judge
from tidelog.ope.assumptions.dependence import with_detected_clusters
from tidelog.ope.estimators.ratios import Ratios, means
from tidelog.ope.estimators.sequential import logged_return, weighted_dr
from tidelog.ope.evidence.folds import clusters_of, episode_folds
from tidelog.ope.evidence.weights import standard_error, support_of


def people(users=40, events=25, correlation=0.5, seed=0, **more):
    generator = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), events)
    reward = np.sqrt(correlation) * generator.normal(size=users)[user]
    reward = reward + np.sqrt(1 - correlation) * generator.normal(size=len(user))
    return user, Log.from_arrays(
        observation=generator.integers(0, 3, len(user)), action=generator.integers(0, 2, len(user)), actions=2,
        reward=reward, **{name: values(user) if callable(values) else values for name, values in more.items()},
    )  # fmt: skip


def test_rows_of_clusters_are_sums():
    ratios = Ratios(np.array([[1.0], [2], [4]]), np.ones((3, 1)))
    together = ratios.clustered(np.array([0, 1, 0]))
    assert together.numerators.ravel().tolist() == [5, 2]
    assert together.denominators.ravel().tolist() == [2, 1]
    assert together.estimate == ratios.estimate
    assert (together.episodes, len(together)) == (3, 2)
    assert ratios.clustered(None) is ratios


def test_a_difference_of_sums_and_episodes_is_over_clusters():
    clusters = np.array([0, 1, 0, 1])
    one, two = means(np.arange(4.0)).clustered(clusters), means(np.ones(4))
    assert one.minus(two).estimate == pytest.approx(0.5)
    assert len(one.minus(two)) == 2


def test_large_logs_add_up_clusters_block_by_block(monkeypatch):
    evidence = random_log([3, 1, 2, 4] * 20)
    clusters = np.arange(80) % 7
    object.__setattr__(evidence, "clusters", clusters)
    whole = weighted_dr(evidence).minus(logged_return(evidence)).clustered(clusters)
    monkeypatch.setattr("tidelog.ope.estimators.sequential.CELLS", 50)
    monkeypatch.setattr("tidelog.ope.estimators.sequential.BLOCK", 40)
    parts = weighted_dr(evidence).minus(logged_return(evidence))
    assert len(parts) == 7
    assert parts.contributions == pytest.approx(whole.contributions)


def test_the_error_of_a_mean_over_clusters():
    """Five copies of every value: the error is that of a fifth of the rows."""
    values = np.random.default_rng(0).normal(size=200)
    copies, clusters = np.tile(values, 5), np.tile(np.arange(200), 5)
    assert standard_error(copies, clusters) == pytest.approx(standard_error(values))
    assert standard_error(copies) < 0.5 * standard_error(values)


def test_effective_sizes_count_clusters():
    evidence = random_log([1] * 100)
    alone = support_of(evidence)
    object.__setattr__(evidence, "clusters", np.arange(100) // 10)
    found = support_of(evidence)
    assert (alone.episodes, found.episodes) == (100, 10)
    assert found.effective_sample_size <= 10
    assert found.largest_weight >= alone.largest_weight


def test_folds_keep_clusters_whole():
    user, log = people(cluster=lambda user: user)
    folds = episode_folds(log, 5, 0)
    assert all(len(set(folds[user == one])) == 1 for one in range(40))
    assert np.array_equal(clusters_of(log), user)
    assert clusters_of(people()[1]) is None


@pytest.mark.parametrize("name", ["user_id", "customer"])
def test_a_person_that_no_role_names_is_a_cluster(name):
    user, log = people(extra={name: np.repeat(np.arange(40), 25)})
    found = with_detected_clusters(log)
    assert np.array_equal(clusters_of(found.log), user)
    assert f"same '{name}'" in found.notes[0]
    assert "fix:" in found.notes[0]


def test_too_few_clusters_are_pointed_out():
    _, log = people(users=12, events=80, extra={"store_id": np.repeat(np.arange(12), 80)})
    found = with_detected_clusters(log)
    assert clusters_of(found.log) is None
    assert "'store_id' may identify dependent episodes" in found.notes[0]


def test_independent_rows_stay_alone():
    _, log = people(correlation=0.0)
    found = with_detected_clusters(log)
    assert found.log is log
    assert found.notes == ()
    _, named = people(cluster=lambda user: user)
    assert with_detected_clusters(named).log is named


def test_copies_are_one_cluster():
    generator = np.random.default_rng(0)
    reward = np.tile(generator.normal(size=100), 5)
    context, action = np.tile(generator.integers(0, 3, 100), 5), np.tile(generator.integers(0, 2, 100), 5)
    log = Log.from_arrays(observation=context, action=action, actions=2, reward=reward)
    found = with_detected_clusters(log)
    assert np.array_equal(clusters_of(found.log)[:100], clusters_of(found.log)[100:200])
    assert "exact copies" in found.notes[0]


class Even:
    def probabilities(self, seen, mask=None):
        return np.full((len(seen["observation"]), 2), 0.5)


def test_worst_episodes_are_resampled_by_cluster():
    """The distribution of returns in a verdict has wider bands where events of one person belong together."""
    recorded = {"propensity": lambda user: np.full(len(user), 0.5)}
    logs = people(**recorded)[1], people(**recorded, cluster=lambda user: user)[1]
    limits = Limits(replicates=1000, effective_episodes=25.0)  # there are few people
    risks = [judge(Even(), log, limits=limits, ledger=False).risk for log in logs]
    alone, together = (risk.cvar.policy.high - risk.cvar.policy.low for risk in risks)
    assert together > 1.2 * alone
