"""Periods of interactions: what is held out came later, and a collapse of variety is said once."""

import warnings

import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.recommenders import described, small
from tidelog.training.runs.run import CollapseWarning, Run, collapsed_metrics
from tidelog.training.runs.time_split import TimeSplit


def row(coverage, member=0):
    return {"update": 0, "member": member, "seed": 0, "main/coverage": coverage, "main/critic_loss": coverage}


def test_a_fall_below_a_quarter_of_the_best_is_told_when_it_happens():
    watched_metrics = small().watched_metrics
    early = {"update": 0, "member": 0, "pretrain/coverage": 0.1}  # a fresh reader names anything
    assert collapsed_metrics(watched_metrics, early, [early | {"pretrain/coverage": 0.9}]) == []
    assert collapsed_metrics(watched_metrics, row(0.1), [row(0.2), row(0.5), row(0.3)]) == ["main/coverage"]
    assert collapsed_metrics(watched_metrics, row(0.2), [row(0.5)]) == []
    assert collapsed_metrics(watched_metrics, row(0.1), [row(0.5), row(0.11)]) == []  # told already
    assert collapsed_metrics(watched_metrics, row(0.1), [row(0.5, member=1)]) == []
    assert collapsed_metrics(watched_metrics, row(0.1), []) == []
    assert collapsed_metrics((), row(0.1), [row(0.5)]) == []


def test_a_run_warns_of_a_collapse():
    class Half:
        members = (type("Member", (), {"index": 0, "seed": 3, "algorithm": small()}),)
        metrics = (row(0.5),)

    with pytest.warns(CollapseWarning, match="main/coverage of RecommenderBCQ with seed 3 fell to 0.1"):
        Run._warn_of_collapse(Half(), [row(0.1)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Run._warn_of_collapse(Half(), [row(0.4)])


@pytest.mark.parametrize(
    ("name", "q_weight", "fix"),
    [
        ("held_out/coverage", 0.0, "fix: lower the learning rate; the weight of Q is 0"),
        ("held_out/coverage", 0.5, "fix: lower the weight of Q or its learning rate"),
        ("main/coverage", 0.0, "fix: lower the weight of Q or its learning rate"),  # of the items that Q chooses
    ],
)
def test_the_advice_on_a_collapse_names_q_only_where_q_has_a_part(name, q_weight, fix):
    class Half:
        members = (type("Member", (), {"index": 0, "seed": 3, "algorithm": small()}),)
        metrics = ({"update": 0, "member": 0, "seed": 0, name: 0.5},)

    with pytest.warns(CollapseWarning, match=fix):
        Run._warn_of_collapse(Half(), [{"update": 1, "member": 0, "seed": 0, name: 0.1, "q_weight": q_weight}])


def test_the_advice_on_a_divergence_can_be_followed():
    with pytest.raises(tl.DivergenceError, match="fix: lower the learning rates") as error:
        tl.fit(small(critic_learning_rate=1e30, pretrain_share=0.0), described(), 6)
    for refused in ("scale=", "reward_scaling", "episodes"):
        assert refused not in str(error.value)


@pytest.mark.full
def test_the_best_policy_of_a_run_without_one_names_a_metric_that_it_has():
    run = tl.fit(small(), described(), 1, held_out=0.3, every=1)
    with pytest.raises(tl.ConfigError, match=r"best='held_out/") as error:
        run.best_policy()
    assert str(error.value).split("best='")[1].split("'")[0] in run.metrics[-1]


def test_what_is_held_out_came_later_and_nothing_else_is_learnt_from():
    periods = TimeSplit(described(), 0.3)
    stores = periods.stores(small(), None)
    kept = periods.validation_stores(small(), None)
    cut = np.float64(periods.held_out_ids[0].removeprefix("from "))
    assert stores["log"].item.shape[0] == (described().time < cut).sum()
    assert int(kept["log"].scored.sum()) == (described().time >= cut).sum()
    assert TimeSplit(described(), 0.0).validation_stores(small(), None) is None
    assert TimeSplit(described(), 0.0).q_weight_selection() is None
