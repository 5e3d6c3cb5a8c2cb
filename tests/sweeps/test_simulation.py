"""A simulated cluster loses workers, freezes some and loses nodes: no trial is lost, and the decisions are the same."""

import pytest

from benchmarks.sweep_simulation import SimulatedCluster, facts, simulate
from tidelog.sweeps.plan import Halving, newest_attempt, read_decisions

TRIALS, NODES = 60, 12


@pytest.mark.full
def test_no_trial_is_lost_in_a_cluster_that_loses_workers(tmp_path):
    clusters = {
        "undisturbed": SimulatedCluster(NODES, 0, 0.0, 0.0, None),
        "disturbed": SimulatedCluster(NODES, 0, 0.05, 0.02, 60.0),
    }
    decisions, found = {}, {}
    for name, cluster in clusters.items():
        driver = simulate(tmp_path / name, TRIALS, cluster, Halving(3, 1_000))
        decisions[name], found[name] = read_decisions(tmp_path / name), facts(driver, cluster)
    assert decisions["disturbed"] == decisions["undisturbed"]
    assert [len(one.promoted) for one in decisions["disturbed"]] == [20, 6]
    assert found["disturbed"]["ended"] == TRIALS
    assert found["disturbed"]["cancelled"] > 0
    assert found["disturbed"]["lost"] > 5
    assert found["disturbed"]["writes_of_older"] == 0
    attempts = [newest_attempt(path) for path in (tmp_path / "disturbed" / "trials").iterdir()]
    assert sum(attempts) == found["disturbed"]["jobs"]
    assert found["undisturbed"]["jobs"] == TRIALS + 20 + 6
