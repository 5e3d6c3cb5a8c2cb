"""Periods of interactions: what is held out came later, and a collapse of variety is said once."""

import warnings

import numpy as np
import pytest

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


def test_what_is_held_out_came_later_and_nothing_else_is_learnt_from():
    periods = TimeSplit(described(), 0.3)
    stores = periods.stores(small(), None)
    kept = periods.validation_stores(small(), None)
    cut = np.float64(periods.held_out_ids[0].removeprefix("from "))
    assert stores["log"].item.shape[0] == (described().time < cut).sum()
    assert int(kept["log"].scored.sum()) == (described().time >= cut).sum()
    assert TimeSplit(described(), 0.0).validation_stores(small(), None) is None
    assert TimeSplit(described(), 0.0).q_weight_selection() is None
