"""Real logs by the mappings that the examples give for them, and the counts that their makers publish."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from examples.entree import steps
from tests.shared import shared
from tidelog.data.inspect import describe_table, inspect_log
from tidelog.data.read import read_log, validate
from tidelog.types import Codes, Discrete

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize(
    ("campaign", "behavior_policy", "clicks", "items"),
    [("men", "random", 46, 34), ("women", "random", 46, 46), ("men", "bts", 69, 34), ("women", "bts", 46, 46)],
)
@pytest.mark.sample(every=3)
def test_open_bandit(campaign: str, behavior_policy: str, clicks: int, items: int) -> None:
    path = shared(f"data/obd_small/{behavior_policy}/{campaign}/{campaign}.csv.gz")
    log = read_log(path, EXAMPLES / f"open_bandit_{campaign}.toml")
    assert log.steps == len(log.episodes) == 10_000
    assert log.spec.action == Discrete(items)
    assert log.observation["numeric"].shape == (10_000, items)
    assert log.reward is not None
    assert log.reward.sum() == clicks
    assert log.propensity is not None
    if behavior_policy == "random":
        np.testing.assert_array_equal(log.propensity, np.float32(1 / items))
    assert not log.report.problems if campaign == "men" and behavior_policy == "random" else log.report.ok
    assert log.terminated.all()
    if campaign == "men" and behavior_policy == "random":
        assert log.spec.observation["categorical"].sizes == (3, 3, 5, 9, 8)
        assert str(log.time[0]) == "2019-11-24T00:03:13.442536"
        assert "10,000 episodes" in inspect_log(log).text()
    if campaign == "men" and behavior_policy == "bts":
        described = describe_table(path)
        assert described.proposed is not None
        assert (described.proposed.action, described.proposed.propensity) == ("item_id", "propensity_score")
        assert read_log(path, described.proposed).steps == 10_000


@pytest.mark.full
def test_online_retail() -> None:
    path = shared("data/online_retail_cc0/online_retail_2010_2011.parquet")
    mapping = EXAMPLES / "online_retail.toml"
    report = validate(path, mapping)
    assert report.rows == 541_909
    assert [(one.check, one.column, one.count) for one in report.errors] == [("missing value", "CustomerID", 135_080)]
    frame = pl.read_parquet(path)
    clean = frame.filter(pl.col("CustomerID").is_not_null(), pl.col("Quantity") > 0, pl.col("UnitPrice") > 0)
    log = read_log(clean, mapping)
    assert log.steps == 397_884
    assert isinstance(log.spec.action, Discrete)
    assert log.spec.action.n == 3_665
    assert len(np.unique(log.extra["CustomerID"])) == 4_338
    countries = log.spec.observation["categorical"]
    assert isinstance(countries, Codes)
    assert countries.sizes == (37,)
    turnover = log.reward.astype(float) @ log.observation["numeric"][:, 0].astype(float)
    np.testing.assert_allclose(turnover, 8_911_407.904, rtol=1e-6)


def test_entree() -> None:
    log = read_log(steps(shared("data/uci_entree/sessions.csv.gz")), EXAMPLES / "entree.toml")
    assert len(log.episodes) == 50_672
    assert log.steps == 189_291
    assert log.reward is not None
    assert log.reward.sum() == 50_672 - 6_092  # all but the sessions whose end point is marked -1
    assert log.spec.action == Discrete(8, tuple("LMNPQRST"))
    counts = dict(zip("LMNPQRST", np.bincount(log.action, minlength=8).tolist(), strict=True))
    assert counts == {"L": 136_646, "M": 7_841, "N": 26_525, "P": 3_155, "Q": 5_689, "R": 6_336, "S": 3_099, "T": 0}
    assert log.terminated.sum() == 50_672
