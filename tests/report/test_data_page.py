"""The page of a log: well formed, alone, described for those who cannot see it, and complete."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.data.visits import mapping, visits
from tests.report.pages import Page, alone, axis_names
from tidelog.data.log import Log
from tidelog.data.read import read_log, validate
from tidelog.errors import ConfigError
from tidelog.plots import bins
from tidelog.report.data_page import data_page, write_data_page


def page_of(log: Log) -> tuple[str, Page]:
    text = data_page(log.report, log)
    return text, Page(text)


def test_a_page_is_well_formed_needs_nothing_else_and_describes_its_pictures() -> None:
    text, page = page_of(read_log(visits(), mapping()))
    alone(page, text)
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(pictures) == 8  # lengths, returns, rewards, actions, propensities, age, sofa and ward
    assert all(picture["role"] == "img" for picture in pictures)
    assert len({picture["aria-label"] for picture in pictures}) == 8
    assert all(axis_names(picture) for picture in re.findall("<svg.*?</svg>", text))
    assert sum(tag == "title" for tag, _ in page.tags) == 1 + len(pictures)
    assert any(attributes.get("name") == "viewport" for _, attributes in page.tags)


def test_a_page_names_the_unit_of_rewards_and_shows_data_exactly() -> None:
    log = read_log(visits(), mapping(reward_unit="EUR"))
    said = " ".join(page_of(log)[1].said)
    assert "return of an episode in EUR" in said
    assert "reward of a step in EUR" in said
    assert f"{float(visits()['age'][0]):.6g}" in said
    assert " in EUR" not in " ".join(page_of(read_log(visits(), mapping()))[1].said)


def test_a_refused_file_has_a_page_with_its_errors_and_rows() -> None:
    report = validate(visits().with_columns(p=pl.lit(2.0)), mapping())
    page = Page(data_page(report))
    said = " ".join(page.said)
    assert "Refused" in said
    assert "39 rows" in said
    assert "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …" in said


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x>', "a & b", "名前", "x\x00y"])
def test_names_and_words_of_a_file_stay_text(name: str) -> None:
    frame = visits().with_columns(ward=pl.lit(name)).rename({"age": name})
    text = data_page(*(lambda log: (log.report, log))(read_log(frame, mapping(observation=[name, "sofa", "ward"]))))
    alone(Page(text), text)


@pytest.mark.parametrize(
    "change",
    [
        {"action": np.random.default_rng(0).normal(size=(20, 2))},
        {"action": np.arange(40).reshape(20, 2) % 3},
        {"reward": None},
        {"reward": np.arange(40.0).reshape(20, 2)},
        {"observation": {"a": np.arange(20) % 3, "b": np.full((20, 61), 3e38)}},
        {"observation": np.linspace(-3e38, 3e38, 20)},
        {"propensity": np.full(20, 0.5)},
        {"action": np.array(["left", "right"] * 10)},
    ],
    ids=["continuous", "multi", "no reward", "two rewards", "codes and many", "huge", "propensity", "words"],
)
def test_every_kind_of_log_has_a_page(change: dict[str, Any]) -> None:
    clean = {"observation": np.arange(20.0), "action": np.arange(20) % 2, "reward": np.arange(20.0)}
    text, page = page_of(Log.from_arrays(**{**clean, **change}, terminated=True))
    alone(page, text)
    assert not {"nan", "inf"} & {word.strip(",;()") for word in " ".join(page.said).split()}


def test_bins_count_every_value_once() -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=500), rng.integers(-3, 9, 500), np.full(7, 2.5), np.array([-3e38, 3e38])):
        made = bins(np.asarray(values, float))
        assert made.counts.sum() == len(values)
        assert len(made.edges) == len(made.counts) + 1
    assert bins(np.array([1.0, 1.0, 3.0])).counts.tolist() == [2, 0, 1]


def test_a_page_is_written_once_and_not_over_something_else(tmp_path: Path) -> None:
    log = read_log(visits(), mapping())
    path = write_data_page(tmp_path / "page.html", log.report, log)
    assert path.read_text(encoding="utf-8") == data_page(log.report, log)
    with pytest.raises(ConfigError, match="exists"):
        write_data_page(path, log.report, log)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_data_page(tmp_path / "nowhere" / "page.html", log.report, log)
