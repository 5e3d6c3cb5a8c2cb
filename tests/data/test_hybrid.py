"""Actions with parts: mappings in, one array inside, the same mappings out."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tidelog import Columns, ConfigError, Log, LogError, SpecError, read_log
from tidelog.report.data_page import data_page
from tidelog.training.stores import log_propensity
from tidelog.types import Continuous, Discrete, Hybrid, MultiDiscrete, Spec, Vector

N = 40
DRIVE = Hybrid(
    (
        ("move/steer", Continuous((-1.0, 0.0), (1.0, 4.0))),
        ("move/gear", Discrete(3)),
        ("lights", MultiDiscrete((2, 4))),
        ("horn", Discrete(2, ("off", "on"))),
    )
)


def action(rows=N, seed=0):
    rng = np.random.default_rng(seed)
    steer = rng.uniform((-1.0, 0.0), (1.0, 4.0), (rows, 2)).astype(np.float32)
    lights = np.stack([np.arange(rows) % 2, np.arange(rows) // 2 % 4], axis=1)
    horn = np.where(np.arange(rows) % 2, "on", "off")
    return {"move": {"steer": steer, "gear": np.arange(rows) % 3}, "lights": lights, "horn": horn}


def log_of(parts, **more):
    columns = {"observation": np.arange(N, dtype=np.float32), "reward": np.ones(N, np.float32), "terminated": True}
    return Log.from_arrays(**(columns | {"action": parts} | more))


@pytest.fixture(scope="module")
def log():
    return log_of(action(), bounds={"move": {"steer": ([-1.0, 0.0], [1.0, 4.0])}})


def same(one, two):
    assert one.keys() == two.keys()
    for name, part in one.items():
        if isinstance(part, dict):
            same(part, two[name])
        else:
            np.testing.assert_array_equal(part, two[name])
            assert part.dtype.kind == two[name].dtype.kind


def test_units_change_numbers_and_never_codes(log):
    unit = DRIVE.to_unit(log.action)
    np.testing.assert_array_equal(unit[:, 2:], log.action[:, 2:])
    np.testing.assert_allclose(unit[:, 1], log.action[:, 1] / 2.0 - 1.0, atol=1e-6)
    far = unit + np.float32([3.0, 3.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(DRIVE.executed(far)[:, :2], np.tile([1.0, 4.0], (N, 1)))
    np.testing.assert_array_equal(DRIVE.executed(unit)[:, 2:], log.action[:, 2:])
    assert DRIVE.log_volume() == Continuous((-1.0, 0.0), (1.0, 4.0)).log_volume()


def test_codes_of_a_saved_log_are_checked(log, tmp_path):
    for value in (3.0, 0.5, -1.0):
        wrong = log.action.copy()
        wrong[3, 2] = value
        replace(log, action=wrong).save(tmp_path / "log", overwrite=True)
        with pytest.raises(LogError, match="actions are out of range"):
            Log.load(tmp_path / "log")


WRONG = {
    "no parts": ({}, ConfigError, "a mapping of no parts"),
    "uneven": ({"a": np.zeros(N, int), "b": np.zeros(3, int)}, ConfigError, "'a' with 40 rows, 'b' with 3 rows"),
    "a number": ({"a": np.zeros(N, int), "b": 1}, ConfigError, "'b' with no rows"),
    "in itself": ({"a": np.zeros(N, int), "a/b": np.zeros(N, int)}, SpecError, "a part 'a' and one in it, 'a/b'"),
    "a fraction": (
        {"a": {"b": np.full(N, 0.5)}, "c": np.arange(N) - 1},
        LogError,
        "action out of range in 'action/c'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mapping_is_one_error_about_itself(name):
    parts, kind, text = WRONG[name]
    with pytest.raises(kind, match=text) as caught:
        log_of(parts)
    assert len(getattr(getattr(caught.value, "report", None), "errors", [0])) == 1


def test_parts_are_checked_when_a_mapping_is_packed():
    whole = {"move": {"steer": np.zeros(2), "gear": 1}, "lights": [0, 1], "horn": 0}
    assert DRIVE.pack(whole).tolist() == [0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    labels = {**whole, "horn": "on"}
    assert DRIVE.pack(labels)[5] == 1.0
    for wrong, text in (
        ({**whole, "hron": 1}, "check hron"),
        ({**whole, "lights": [0, 1, 1]}, r"the part 'lights' has shape \[3\]"),
        ({**whole, "horn": "onn"}, "the part 'horn' is 'onn': did you mean 'on'"),
        ({**whole, "move": {"steer": ["a", "b"], "gear": 1}}, "the part 'move/steer' has shape"),
        ({**whole, "horn": [0, 1]}, "different numbers of rows"),
    ):
        with pytest.raises(SpecError, match=text):
            DRIVE.pack(wrong)
    for parts in ((), (("a", Discrete(2)), ("a", Discrete(2)))):
        with pytest.raises(SpecError, match="each with its own name"):
            Hybrid(parts)
    with pytest.raises(SpecError, match="16,777,217 codes: expected at most 16,777,216"):
        Hybrid((("item", Discrete(2**24 + 1)),))
    broken = Spec({"observation": Vector(1)}, DRIVE).to_json()
    broken["action"]["parts"][0][1]["low"] = [5.0]
    with pytest.raises(SpecError):
        Spec.from_json(broken)


TABLE = {
    "angle": np.linspace(-1.0, 1.0, N),
    "speed": np.linspace(0.0, 4.0, N),
    "gear": np.arange(N) % 3,
    "left": np.arange(N) % 2,
    "right": np.arange(N) // 2 % 4,
    "horn": np.where(np.arange(N) % 2, "on", "off"),
    "seen": np.arange(N, dtype=np.float32),
    "earned": np.ones(N),
}
DECLARED = {
    "observation": "seen",
    "reward": "earned",
    "terminated": True,
    "action": {"move": {"steer": ["angle", "speed"], "gear": "gear"}, "lights": ["left", "right"], "horn": "horn"},
    "bounds": {"move": {"steer": [[-1.0, 0.0], [1.0, 4.0]]}},
    "actions": {"lights": [2, 4], "move/gear": 3},
}


MISFITS = {
    "a missing column": ({"action": {"gear": "gaer", "horn": "horn"}}, LogError, "no column 'gaer' for action"),
    "no columns": ({"action": {"gear": []}}, ConfigError, "at least one column"),
    "no parts": ({"action": {}}, ConfigError, "expected at least one part"),
    "numbers": ({"action": {"gear": 3}}, ConfigError, "action = 3: expected a column or a list of columns"),
    "a count for all": ({"actions": 3, "bounds": None}, ConfigError, "actions = 3 of an action with the parts"),
    "an unknown part": ({"actions": {"gaer": 3}}, ConfigError, "actions names 'gaer', which is no part of the action"),
    "out of range": ({"actions": {"lights": [2, 3]}}, LogError, "action out of range in 'left, right'"),
    "out of bounds": ({"bounds": {"move/steer": [-1.0, 2.0]}}, LogError, "action out of bounds in 'angle, speed'"),
    "too few bounds": ({"bounds": {"move/steer": [[0, 0, 0], [1, 1, 1]]}}, LogError, "2 action columns, but 3 were"),
    "a word": ({"vocabularies": {"horn": ["on"]}}, LogError, "unknown category in 'horn'"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_a_part_is_named(name):
    changes, kind, text = MISFITS[name]
    plain = {} if "action" not in changes else {"actions": None, "bounds": None}
    with pytest.raises(kind, match=text) as caught:
        read_log(pl.DataFrame(TABLE), Columns(**(DECLARED | plain | changes)))
    assert len(getattr(getattr(caught.value, "report", None), "errors", [0])) == 1


def test_statistics_count_choices_and_measure_numbers(log):
    actions = log.statistics().actions
    assert actions["counts"] == {
        "move/gear": [14, 13, 13], "lights[0]": [20, 20], "lights[1]": [10, 10, 10, 10], "horn": [20, 20]
    }  # fmt: skip
    np.testing.assert_allclose(actions["mean"], log.action[:, :2].mean(axis=0), rtol=1e-6)
    assert len(log.plot().axes) >= 6
    page = data_page(log.report, log)
    for label in ("move/steer[0]", "move/gear", "lights[1]", "horn"):
        assert label in page


def test_two_parts_of_one_name_an_empty_name_and_ragged_rows_are_refused():
    numbers = np.ones(N, np.float32)
    for parts, what in (
        ({"a/b": numbers, "a": {"b": np.zeros(N, int)}}, "two are named 'a/b'"),
        ({"": numbers}, "named ''"),
    ):
        with pytest.raises(SpecError, match=rf"parts of a mapping: .*{what}: expected different names"):
            log_of(parts)
    with pytest.raises(SpecError, match="two are named 'move/gear'"):
        DRIVE.pack({"move/gear": 1, **{name: part[0] if name != "move" else part for name, part in action().items()}})
    ragged = action() | {"lights": [[0, 1], [1]]}
    for give in (log_of, DRIVE.pack):
        with pytest.raises(SpecError, match="the part 'lights' of the action has rows of different lengths"):
            give(ragged)
    with pytest.raises(SpecError, match="two are named 'a/b'"):
        Columns(observation="x", reward="r", action={"a/b": "one", "a": {"b": "two"}})


def test_densities_of_parts_are_in_the_units_of_the_networks(log):
    log = replace(log, propensity=np.full(N, 0.25, np.float32))  # half the ranges are 1 and 2
    np.testing.assert_allclose(log_propensity(log), np.log(0.25) + np.log(2.0), rtol=1e-6)
