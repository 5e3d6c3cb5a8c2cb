"""A real log by the mapping that the examples give for it."""

from pathlib import Path

import numpy as np
import pytest

from tests.shared import shared
from tidelog.data.inspect import describe_table, inspect_log
from tidelog.data.read import read_log
from tidelog.types import Discrete

MAPPING = Path(__file__).resolve().parents[3] / "examples" / "open_bandit_men.toml"


def test_random_men() -> None:
    log = read_log(shared("data/obd_small/random/men/men.csv.gz"), MAPPING)
    assert log.steps == len(log.episodes) == 10_000
    assert log.spec.action == Discrete(34)
    assert log.reward is not None
    assert log.reward.sum() == 46
    assert log.propensity is not None
    np.testing.assert_array_equal(log.propensity, np.float32(1 / 34))
    assert log.spec.observation["categorical"].sizes == (3, 3, 5, 9, 8)
    assert log.spec.observation["numeric"].size == 34
    assert log.terminated.all()
    assert not log.report.problems
    assert str(log.time[0]) == "2019-11-24T00:03:13.442536"
    assert "10,000 episodes" in inspect_log(log).text()


@pytest.mark.full
def test_bts_men_and_the_proposal() -> None:
    path = shared("data/obd_small/bts/men/men.csv.gz")
    assert read_log(path, MAPPING).report.ok
    described = describe_table(path)
    assert described.proposed is not None
    assert described.proposed.action == "item_id"
    assert described.proposed.propensity == "propensity_score"
    assert read_log(path, described.proposed).steps == 10_000
