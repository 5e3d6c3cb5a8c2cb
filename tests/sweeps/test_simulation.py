"""A simulated cluster loses workers, freezes some and loses nodes: no trial is lost, and the decisions are the same."""

import pytest

from benchmarks.sweep_simulation import SimulatedCluster, expected, facts, simulate
from tidelog.sweeps.plan import Halving, newest_attempt, read_decisions

TRIALS, NODES = 60, 12


@pytest.mark.full
def test_no_trial_is_lost_in_a_cluster_that_loses_workers(tmp_path):
    cluster, halving = SimulatedCluster(NODES, 0, lost=0.05, frozen=0.05, node_seconds=300.0), Halving(3, 1_000)
    driver = simulate(tmp_path / "sweep", TRIALS, cluster, halving)
    found, decisions = facts(driver, cluster), read_decisions(tmp_path / "sweep")
    assert [one.promoted for one in decisions] == expected(TRIALS, 0, halving)
    assert [len(one.promoted) for one in decisions] == [20, 6]
    assert found["ended"] == TRIALS
    assert found["cancelled"] > 0
    assert found["lost"] > 3
    assert found["writes_of_older"] == 0
    attempts = [newest_attempt(path) for path in (tmp_path / "sweep" / "trials").iterdir()]
    assert sum(attempts) == found["jobs"] == TRIALS + 20 + 6 + found["lost"] + found["cancelled"]
