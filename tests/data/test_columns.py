"""Mappings: from files, and the ways in which they are refused."""

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tidelog.data.columns import Columns
from tidelog.errors import ConfigError


def test_toml_and_json_give_the_same_mapping(tmp_path: Path) -> None:
    data = {"observation": ["a", "b"], "action": "c", "reward": "r", "actions": 3, "terminated": True}
    (tmp_path / "c.json").write_text(json.dumps(data))
    lines = ['observation = ["a", "b"]', 'action = "c"', 'reward = "r"', "actions = 3", "terminated = true"]
    (tmp_path / "c.toml").write_text("\n".join(lines))
    assert Columns.from_file(tmp_path / "c.json") == Columns.from_file(str(tmp_path / "c.toml")) == Columns(**data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"observaton": "a"}, "did you mean 'observation'"),
        ({"missing": "forwards"}, "did you mean 'forward'"),
        ({"missing": {"a": "mean"}}, "missing = 'mean' is unknown"),
        ({"missing": {"c": "forward"}}, "missing names 'c', which the mapping does not use"),
        ({"missing": 3}, "expected columns mapped to rules"),
        ({"missing": {"a": 1}}, "expected columns mapped to rules"),
        ({"vocabularies": {"aa": ["x"]}}, "did you mean 'a'"),
        ({"vocabularies": {"a": ["x", "x"]}}, "expected different texts"),
        ({"vocabularies": {"a": []}}, "expected different texts"),
        ({"vocabularies": {"a": [1]}}, "expected different texts"),
        ({"vocabularies": {"a": "xy"}}, "expected columns mapped to lists"),
        ({"image": "c"}, "image names 'c'"),
        ({"observation": "numeric", "image": "numeric"}, "rename the column"),
        ({"terminations": "stopp"}, "did you mean 'stop'"),
        ({"actions": 0}, "at least 1"),
        ({"actions": "3"}, "whole number"),
        ({"actions": [3, True]}, "whole number"),
        ({"bounds": (1, 0)}, "low <= high"),
        ({"bounds": (0, float("inf"))}, "finite"),
        ({"bounds": ([0, 0], [1, 1, 1])}, "equal length"),
        ({"bounds": 3}, "low, high"),
        ({"actions": 3, "bounds": (0, 1)}, "set only one of them"),
        ({"observation": []}, "expected at least one column"),
        ({"observation": 3}, "expected a column or a list of columns"),
        ({"episode": ["a", "b"]}, "expected the name of one column"),
        ({"terminated": False}, "expected the name of one column"),
        ({"next_observation": ["a"]}, "in the same order"),
        ({"next_action_mask": "m"}, "without action_mask"),
    ],
)
def test_mappings_that_cannot_be_meant(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Columns.from_mapping({"observation": ["a", "b"], "action": "c", **change})


def test_unknown_keys_of_the_class_are_refused_too() -> None:
    with pytest.raises(ConfigError, match="did you mean 'episode'"):
        Columns(observation="a", action="b", reward=None, epsiode="e")  # type: ignore[call-arg]
    mapping = Columns(observation=["a"], action="b", reward=None, bounds=[[0], [1]])
    assert mapping == Columns(observation=("a",), action="b", reward=None, bounds=((0,), (1,)))
    assert hash(mapping)
    assert copy.deepcopy(mapping) == mapping


def test_unreadable_mappings_are_refused(tmp_path: Path) -> None:
    for name, text in (("a.toml", "observation ="), ("a.json", "{"), ("b.json", "[]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=name):
            Columns.from_file(tmp_path / name)
    with pytest.raises(ConfigError, match=r"there is no mapping .*none\.toml"):
        Columns.from_file(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        Columns.from_file(tmp_path)
    with pytest.raises(ConfigError, match="action is not set"):
        Columns.from_mapping({"observation": "a"})


def test_rules_and_vocabularies_by_column(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'observation = ["a", "b"]\naction = "c"\nmissing = { b = "forward" }\nvocabularies = { a = ["y", "x"] }\n'
    )
    mapping = Columns.from_file(tmp_path / "c.toml")
    assert mapping.rules == {"a": "error", "b": "forward"}
    assert mapping.vocabulary_of == {"a": ("y", "x")}
    assert mapping == Columns.from_mapping(json.loads(json.dumps(asdict(mapping))))
    assert hash(mapping)
    assert Columns(observation="a", action="b", reward=None, missing="mean+flag").rules == {"a": "mean+flag"}
