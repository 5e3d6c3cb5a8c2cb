"""What the inspection says, and the mapping that it proposes."""

import json
import tomllib
from pathlib import Path

import polars as pl

from tests.data.visits import mapping, visits
from tidelog.data import Columns, describe_table, inspect_log, read_log


def test_a_log_in_numbers() -> None:
    inspection = inspect_log(read_log(visits(), mapping()))
    assert json.loads(json.dumps(inspection.to_json()))["statistics"] == inspection.data["statistics"]
    text = inspection.text()
    for said in ("12 episodes, 39 steps", "6 terminated, 6 truncated", "propensities: min 0.1", "ward: 3 categories"):
        assert said in text
    assert max(map(len, text.split("\n"))) <= 140


def test_continuous_actions_in_numbers() -> None:
    continuous = mapping(action="sofa", actions=None, action_mask=None, bounds=(0, 30))
    assert "actions: mean" in inspect_log(read_log(visits(), continuous)).text()


def test_a_proposed_mapping_reads_the_table(tmp_path: Path) -> None:
    renamed = visits().rename({"dose": "action", "r": "reward", "died": "done", "left": "timeout", "p": "propensity"})
    frame = renamed.rename({f"m{place}": f"mask_{place}" for place in range(3)})
    frame.write_csv(tmp_path / "visits.csv")
    described = describe_table(tmp_path / "visits.csv")
    assert described.proposed == Columns.from_mapping(tomllib.loads(described.toml))
    log = read_log(frame, described.proposed)
    assert log.fingerprint() == read_log(visits(), mapping(actions=None)).fingerprint()
    kinds = {one.name: one.kind for one in described.fields}
    assert kinds["ward"] == "word"
    assert kinds["done"] == "flag"
    assert kinds["age"] == "number"
    assert kinds["hour"] == "whole number"
    assert "proposed mapping" in described.text()
    assert json.dumps(described.to_json())


def test_a_table_that_looks_like_nothing_is_described_without_a_mapping() -> None:
    described = describe_table(pl.DataFrame({"when": ["2020-01-01"], "x": [None], "weird": [[1, 2]]}))
    assert described.proposed is None
    assert "# action = ..." in described.toml
    assert [one.kind for one in described.fields] == ["time", "empty", "list"]
