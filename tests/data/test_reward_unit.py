"""The unit of rewards: from a mapping or an argument into every saved form, and without effect on the numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.data.clicks import interactions
from tests.data.visits import mapping, visits
from tidelog import concat
from tidelog._files import MANIFEST
from tidelog.data.log import Log
from tidelog.data.read import open_log, read_log
from tidelog.errors import ConfigError, LogError
from tidelog.recommend.interactions import text
from tidelog.recommend.read import open_interactions

PLAIN = {"observation": np.arange(6.0), "action": np.arange(6) % 2, "reward": np.arange(6.0), "terminated": True}


def test_a_unit_is_kept_in_parts_and_in_every_saved_form(tmp_path: Path) -> None:
    log = read_log(visits(), mapping(reward_unit=" EUR "))
    assert log.reward_unit == "EUR"
    assert [part.reward_unit for part in log.split(0.5)] == ["EUR", "EUR"]
    assert log.take_episodes([1, 0]).reward_unit == "EUR"
    log.save(tmp_path / "a.tidelog")
    assert open_log(tmp_path / "a.tidelog").reward_unit == "EUR"
    assert read_log(tmp_path / "a.parquet", log.to_parquet(tmp_path / "a.parquet")).reward_unit == "EUR"
    arrays = Log.from_arrays(**PLAIN, reward_unit="QALY")
    arrays.to_npz(tmp_path / "a.npz")
    assert read_log(tmp_path / "a.npz").reward_unit == "QALY"
    assert Log.from_arrays(**arrays.to_arrays()).reward_unit == "QALY"


def test_without_a_unit_nothing_is_written_and_with_one_no_number_changes(tmp_path: Path) -> None:
    plain, named = (read_log(visits(), mapping(**unit)) for unit in ({}, {"reward_unit": "EUR"}))
    assert plain.reward_unit is None
    assert plain.fingerprint() == named.fingerprint()
    assert plain.statistics() == named.statistics()
    plain.save(tmp_path / "a")
    assert "reward_unit" not in json.loads((tmp_path / "a" / MANIFEST).read_text())
    assert "reward_unit" not in plain.to_parquet(tmp_path / "a.parquet").read_text()
    assert "reward_unit" not in plain.to_arrays()


@pytest.mark.parametrize("unit", ["", "  ", "two\nlines", "x" * 31, 3, ["EUR"], "bell\x07"])
def test_only_a_short_text_is_a_unit(unit: object) -> None:
    with pytest.raises(ConfigError, match=r"reward_unit = .*expected a text of 1 to 30 characters on one line. fix:"):
        mapping(reward_unit=unit)
    with pytest.raises(ConfigError, match="reward_unit"):
        Log.from_arrays(**PLAIN, reward_unit=unit)


def test_a_unit_names_no_column_and_needs_rewards() -> None:
    assert "reward_unit" not in mapping(reward_unit="EUR").used()
    with pytest.raises(ConfigError, match=r"reward_unit = 'EUR' is set without reward\. fix:"):
        mapping(reward=None, reward_unit="EUR")


def test_logs_in_different_units_are_not_joined() -> None:
    logs = [Log.from_arrays(**PLAIN, reward_unit=unit) for unit in ("EUR", "USD", None)]
    assert concat([logs[0], logs[0]]).reward_unit == "EUR"
    for other in logs[1:]:
        with pytest.raises(LogError, match=r"reward_unit is EUR in log 0 .*fix: declare the same reward_unit="):
            concat([logs[0], other])


def test_a_damaged_unit_of_a_saved_log_is_refused(tmp_path: Path) -> None:
    log = Log.from_arrays(**PLAIN, reward_unit="EUR")
    object.__setattr__(log, "reward_unit", "two\nlines")
    log.save(tmp_path / "a")
    with pytest.raises(LogError, match=r"an entry is missing or malformed .*reward_unit"):
        open_log(tmp_path / "a")


def test_the_unit_of_interactions_is_read_saved_and_shown(tmp_path: Path) -> None:
    log, plain = interactions(reward_unit=" EUR "), interactions()
    assert (log.reward_unit, plain.reward_unit) == ("EUR", None)
    assert log.fingerprint() == plain.fingerprint()
    assert "\nrewards in EUR: min" in text(log)
    assert "\nrewards: min" in text(plain)
    log.save(tmp_path / "clicks")
    plain.save(tmp_path / "plain")
    assert open_interactions(tmp_path / "clicks").reward_unit == "EUR"
    assert open_interactions(tmp_path / "plain").reward_unit is None
    for part in (log.split(share=0.3).train, log.split(share=0.3).test):
        assert part.reward_unit == "EUR"
    with pytest.raises(ConfigError, match="reward_unit = '': expected a text"):
        interactions(reward_unit="")
