"""Actions with parts: mappings in, one array inside, the same mappings out."""

from dataclasses import replace

import numpy as np
import pytest

from tidelog import ConfigError, Log, LogError, SpecError
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


def test_a_mapping_becomes_one_array_in_its_own_order_and_comes_back(log):
    assert log.spec.action == DRIVE
    assert log.action.shape == (N, 6)
    assert log.action.dtype == np.float32
    written = action() | {"horn": np.arange(N) % 2}
    same(DRIVE.unpack(log.action), written)
    np.testing.assert_array_equal(DRIVE.pack(written), log.action)
    row = DRIVE.unpack(log.action[7])
    assert (int(row["move"]["gear"]), row["lights"].tolist(), int(row["horn"])) == (1, [1, 3], 1)
    np.testing.assert_array_equal(DRIVE.pack(row), log.action[7])


def test_units_change_numbers_and_never_codes(log):
    unit = DRIVE.to_unit(log.action)
    np.testing.assert_array_equal(unit[:, 2:], log.action[:, 2:])
    np.testing.assert_allclose(unit[:, 1], log.action[:, 1] / 2.0 - 1.0, atol=1e-6)
    far = unit + np.float32([3.0, 3.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(DRIVE.executed(far)[:, :2], np.tile([1.0, 4.0], (N, 1)))
    np.testing.assert_array_equal(DRIVE.executed(unit)[:, 2:], log.action[:, 2:])
    assert DRIVE.log_volume() == Continuous((-1.0, 0.0), (1.0, 4.0)).log_volume()


def test_a_log_is_the_same_after_saving_and_as_arrays(log, tmp_path):
    log.save(tmp_path / "log")
    for other in (Log.load(tmp_path / "log"), Log.load(tmp_path / "log", memory_map=True)):
        assert other.spec == log.spec
        np.testing.assert_array_equal(other.action, log.action)
    arrays = log.to_arrays()
    assert list(arrays["action"]) == ["move/steer", "move/gear", "lights", "horn"]
    np.testing.assert_array_equal(Log.from_arrays(**arrays).action, log.action)
    assert Spec.from_json(log.spec.to_json()) == log.spec


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


def test_declarations_are_by_part():
    parts = {"dose": np.linspace(0.0, 1.0, N), "drug": np.arange(N) % 3}
    spec = log_of(parts, actions={"drug": 5}, bounds={"dose": (0.0, 2.0)}).spec.action
    assert dict(spec.parts) == {"dose": Continuous((0.0,), (2.0,)), "drug": Discrete(5)}
    with pytest.raises(ConfigError, match=r"actions = 5 of an action with the parts dose, drug.*write actions="):
        log_of(parts, actions=5)
    with pytest.raises(ConfigError, match="bounds names 'does', which is no part of the action; did you mean 'dose'"):
        log_of(parts, bounds={"does": (0.0, 1.0)})
    with pytest.raises(LogError, match="action out of bounds in 'action/dose'"):
        log_of(parts, bounds={"dose": (0.0, 0.5)})
    with pytest.raises(LogError, match="propensity out of range"):
        log_of({"drug": np.arange(N) % 3, "arm": np.arange(N) % 2}, propensity=np.full(N, 1.5))
    assert log_of(parts, propensity=np.full(N, 1.5)).propensity[0] == 1.5  # a density


def test_parts_are_checked_when_a_mapping_is_packed():
    whole = {"move": {"steer": np.zeros(2), "gear": 1}, "lights": [0, 1], "horn": 0}
    assert DRIVE.pack(whole).tolist() == [0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    for wrong, text in (
        ({**whole, "hron": 1}, "check hron"),
        ({**whole, "lights": [0, 1, 1]}, r"the part 'lights' has shape \[3\]"),
        ({**whole, "horn": "on"}, "the part 'horn' has shape"),
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
