"""The small sample of the Open Bandit data: 10,000 rows a behaviour policy and campaign (Saito et al. 2021,
arXiv:2008.07146).
"""

import json

import numpy as np
import polars as pl
import pytest

from tests.ope.made import evidence_of
from tests.shared import shared
from tidelog.ope.estimators import episode_weights, ips, snips, support_of

ITEMS = {"men": 34, "women": 46}


def read(behavior_policy, campaign):
    path = shared(f"data/obd_small/{behavior_policy}/{campaign}/{campaign}.csv.gz")
    return pl.read_csv(path, columns=["item_id", "position", "click", "propensity_score"])


def oracle():
    return json.loads(shared("oracles/ope_examples.json").read_text())["open_bandit_small_sample"]


def uniform_to_bts(campaign):
    """The uniform log; the target shows each item as often as the other behaviour policy did in the same position."""
    uniform, bts = read("random", campaign), read("bts", campaign)
    shares = np.zeros((4, ITEMS[campaign]))
    np.add.at(shares, (bts["position"].to_numpy(), bts["item_id"].to_numpy()), 1.0)
    shares[1:] /= shares[1:].sum(1, keepdims=True)  # positions are 1, 2 and 3
    return evidence_of(
        [1] * len(uniform),
        reward=uniform["click"],
        target=shares[uniform["position"].to_numpy(), uniform["item_id"].to_numpy()],
        behaviour=uniform["propensity_score"],
    )


def test_thompson_sampling_says_nothing_about_uniform_choice():
    found, log = oracle()["bts_log_to_uniform_women"], read("bts", "women")
    evidence = evidence_of(
        [1] * len(log), reward=log["click"], target=np.full(len(log), 1 / 46), behaviour=log["propensity_score"]
    )
    support = support_of(evidence)
    assert support.effective_sample_size == pytest.approx(found["effective_sample_size"], abs=0.05)
    assert episode_weights(evidence).max() == pytest.approx(found["largest_weight"], abs=1)
    assert support.largest_weight > 0.6
    # a lone weight shows in its share only: the tail below it is short, and it is as large as the mean weight's error
    assert support.pareto_k < 0.7
    assert abs(support.mean_weight - 1) < 3 * support.mean_weight_error


def test_uniform_choice_says_enough_about_thompson_sampling():
    found, evidence = oracle()["uniform_log_to_bts_marginal_men"], uniform_to_bts("men")
    support = support_of(evidence)
    assert ips(evidence).estimate == pytest.approx(found["ips"], abs=5e-6)
    assert snips(evidence).estimate == pytest.approx(found["snips"], abs=5e-6)
    assert support.effective_sample_size == pytest.approx(found["effective_sample_size"], abs=0.5)
    assert support.pareto_k < 0.7
    assert abs(support.mean_weight - 1) < 3 * support.mean_weight_error
    women = oracle()["uniform_log_to_bts_marginal_women"]
    assert support_of(uniform_to_bts("women")).effective_sample_size == pytest.approx(
        women["effective_sample_size"], abs=0.5
    )


def test_clicks_of_each_log():
    for name, clicks in oracle()["clicks_of_10000"].items():
        behavior_policy, campaign = name.split("_")
        assert read(behavior_policy, campaign)["click"].sum() == clicks, name
