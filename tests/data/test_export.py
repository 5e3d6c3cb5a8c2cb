"""A log that is written and read again is the same log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.data import test_declared as declared
from tests.data import test_elapsed as elapsed
from tests.data import test_hybrid as hybrid
from tests.data import test_missing_rewards as missing_rewards
from tests.data.sources.test_arrays import regular
from tests.data.visits import NEXT, mapping, visits, with_next
from tidelog.data.columns import Columns
from tidelog.data.log import Log
from tidelog.data.read import convert, read_log
from tidelog.errors import ConfigError, LogError
from tidelog.types import Hybrid

VISITS = with_next(visits()).with_columns(t=pl.lit("2020-02-01").str.to_datetime() + pl.duration(hours="hour"))
GIVEN = {"next_observation": NEXT, "time": "t", "extra": ["ward", "sofa"], "weight": "sofa"}


def same_columns(log: Log, other: Log, without: tuple[str, ...] = ()) -> None:
    columns, others = log.columns(), other.columns()
    kept = {name for name in columns if name not in without}
    assert kept == set(others) - set(without)
    for name in kept:
        np.testing.assert_array_equal(columns[name], others[name], err_msg=name)
        assert columns[name].dtype == others[name].dtype, name


@pytest.mark.parametrize(
    "changes",
    [
        GIVEN,
        {},
        {"truncated": None},
        {"episode": None, "step": None, "terminated": True, "truncated": None},
        {"action": "ward", "actions": None, "action_mask": None, "observation": ["age"], "propensity": None},
        {"action": ["age", "sofa"], "actions": None, "action_mask": None, "bounds": ([0, 0], [200, 30.1]),
         "propensity": None, "observation": ["ward"]},
        {"reward": ["r", "age"]},
        {"reward": None},
    ],
)  # fmt: skip
def test_parquet_gives_the_same_log(changes: dict[str, Any], tmp_path: Path) -> None:
    log = read_log(VISITS, mapping(**changes))
    mapping_path = log.to_parquet(tmp_path / "a.parquet")
    again = read_log(tmp_path / "a.parquet", mapping_path)
    assert again.spec == log.spec
    assert again.fingerprint() == log.fingerprint()


def test_parquet_of_a_part_keeps_words_and_counts(tmp_path: Path) -> None:
    spoken = mapping(action="ward", actions=None, action_mask=None, propensity=None, observation=["age", "dose"],
                     categorical=["dose"])  # fmt: skip
    part = read_log(VISITS, spoken).take_episodes([2, 6])
    again = read_log(tmp_path / "a.parquet", part.to_parquet(tmp_path / "a.parquet"))
    assert again.spec == part.spec
    assert again.fingerprint() == part.fingerprint()


def test_parquet_where_some_ends_are_followed_and_others_are_not(tmp_path: Path) -> None:
    frame = VISITS.with_columns(VISITS[name].set(VISITS["died"] == 1, None) for name in NEXT)
    log = read_log(frame, mapping(next_observation=NEXT))
    assert 0 < log.transitions.followed[log.starts[1:] - 1].sum() < len(log.episodes)
    again = read_log(tmp_path / "a.parquet", log.to_parquet(tmp_path / "a.parquet"))
    assert again.fingerprint() == log.fingerprint()


def test_fills_are_empty_cells_again(tmp_path: Path) -> None:
    frame = VISITS.with_columns(
        age=VISITS["age"].set(VISITS["hour"] == 1, None), ward=VISITS["ward"].set(VISITS["hour"] == 2, None)
    )
    log = read_log(frame, mapping(missing={"age": "mean+flag", "ward": "mean+flag"}))
    mapping_path = log.to_parquet(tmp_path / "a.parquet")
    table = pl.read_parquet(tmp_path / "a.parquet")
    assert table["age"].null_count() == (VISITS["hour"] == 1).sum()
    assert table["ward"].null_count() == (VISITS["hour"] == 2).sum()
    again = read_log(tmp_path / "a.parquet", mapping_path)
    assert again.spec.observation["numeric"].names == ("age", "sofa", "age missing")
    same_columns(again, log, without=("observation/numeric",))
    np.testing.assert_allclose(again.observation["numeric"], log.observation["numeric"], rtol=1e-6)


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "observation": {"a": rng.normal(size=(9, 3)).astype(np.float32), "b/c": rng.integers(0, 3, (9, 2)),
                        "b/d": rng.integers(0, 2, 9)},
        "action": rng.integers(0, 3, (9, 2)), "actions": [3, 4], "reward": rng.normal(size=9).astype(np.float32),
        "episode": [1, 1, 1, 1, 5, 5, 5, 9, 9], "terminated": [0, 0, 0, 1, 0, 0, 0, 0, 1],
    }  # fmt: skip


LOGS: dict[str, Callable[[], Log]] = {  # what a log may hold beside decisions; the last word: what cannot hold it
    "all roles": lambda: read_log(VISITS, mapping(next_observation=NEXT, time="t", weight="sofa")),
    "extra columns, npz": lambda: read_log(VISITS, mapping(**GIVEN)),
    "clusters": lambda: read_log(VISITS.with_columns(c=pl.col("patient").str.tail(1)), mapping(cluster="c")),
    "times to the next decision": lambda: elapsed.read(),
    "unknown rewards": lambda: missing_rewards.read(missing_reward="unknown"),
    "rewards missing at random": lambda: missing_rewards.read(missing_reward="at random"),
    "a unit": lambda: read_log(visits(), mapping(reward_unit=" EUR ")),
    "atoms": lambda: read_log(*declared.table_of_atoms(atoms=[0.5, 0, 0.0], bounds=[-1, 1])),
    "one probability, npz": lambda: read_log(declared.table(), Columns(propensity=0.5, **declared.ROLES)),
    "shares by village, npz": lambda: read_log(declared.table(), Columns(propensity=BY_VILLAGE, **declared.ROLES)),
    "parts of an action": lambda: read_log(pl.DataFrame(hybrid.TABLE), Columns(**hybrid.DECLARED)),
}
BY_VILLAGE = {"shares_by": ["village"]}
STATED = ("elapsed_unit", "missing_reward", "reward_unit", "atoms")


@pytest.mark.parametrize("name", LOGS)
def test_every_way_out_leads_back(name: str, tmp_path: Path) -> None:
    log = LOGS[name]()
    log.save(tmp_path / "log")
    ways = {
        "folder": Log.load(tmp_path / "log"), "mapped": Log.load(tmp_path / "log", memory_map=True),
        "table": read_log(tmp_path / "a.parquet", log.to_parquet(tmp_path / "a.parquet")),
        "arrays": Log.from_arrays(**log.to_arrays()), "all episodes": log.take_episodes(range(len(log.episodes))),
    }  # fmt: skip
    if not name.endswith("npz"):
        log.to_npz(tmp_path / "a.npz")
        ways["npz"] = read_log(tmp_path / "a.npz")
    for way, again in ways.items():
        same_columns(again, log)
        assert [getattr(again, one) for one in STATED] == [getattr(log, one) for one in STATED], way
        assert (again.declared is None) == (log.declared is None), way
        assert getattr(again.declared, "probabilities", None) == getattr(log.declared, "probabilities", None), way
        if way not in ("table", "arrays", "npz"):  # these say in other words where they come from
            assert (again.fingerprint(), again.spec, again.report) == (log.fingerprint(), log.spec, log.report), way
        if isinstance(log.spec.action, Hybrid):
            assert [one for one, _ in again.spec.action.parts] == [one for one, _ in log.spec.action.parts], way
    assert all(isinstance(values, np.memmap) for values in ways["mapped"].columns().values())
    parts = log.split(0.5, seed=0)
    for part in (*parts, Log.concat(list(parts))):
        assert [getattr(part, one) for one in STATED] == [getattr(log, one) for one in STATED]
        assert part.declared == log.declared


def test_a_unit_has_no_spaces_around_it_and_atoms_are_in_order() -> None:
    assert LOGS["a unit"]().reward_unit == "EUR"
    assert LOGS["atoms"]().atoms == (0.0, 0.5)


@pytest.mark.parametrize("known", ["all", "some", "none"])
def test_npz_gives_the_same_log(known: str, tmp_path: Path) -> None:
    given = arrays()
    ends = np.isin(np.arange(9), [3, 6, 8])
    if known != "none":
        following = {name: np.roll(leaf, -1, axis=0) for name, leaf in given["observation"].items()}
        given |= {"next_observation": following, "followed": ~ends if known == "x" else np.arange(9) != 6}
        given |= {"followed": None} if known == "all" else {}
    log = Log.from_arrays(**given, time=np.arange(9.0), weight=np.ones(9))
    log.to_npz(tmp_path / "a.npz")
    assert read_log(tmp_path / "a.npz").fingerprint() == log.fingerprint()
    assert Log.from_arrays(**log.to_arrays()).fingerprint() == log.fingerprint()
    with pytest.raises(LogError, match="exists"):
        log.to_npz(tmp_path / "a.npz")


def test_what_has_no_place_is_refused(tmp_path: Path) -> None:
    log = Log.from_arrays(**arrays())
    with pytest.raises(LogError, match="does not support extra columns"):
        Log.from_arrays(**arrays(), extra={"n": np.arange(9)}).to_npz(tmp_path / "a.npz")
    with pytest.raises(LogError, match=r"the folder .* does not exist"):
        log.to_parquet(tmp_path / "none" / "a.parquet")
    log.to_parquet(tmp_path / "a.parquet")
    for name in ("a.parquet", "a.toml"):
        with pytest.raises(LogError, match=f"{name} exists"):
            log.to_parquet(tmp_path / "a.parquet")
        (tmp_path / "a.parquet").unlink(missing_ok=True)
    log.to_parquet(tmp_path / "a.parquet", overwrite=True)


def test_convert_by_the_name_of_the_target(tmp_path: Path) -> None:
    source = regular(tmp_path / "source.npz")
    paths = [str(tmp_path / f"a{ending}") for ending in (".parquet", ".tidelog", ".npz")]
    said = [convert(source, target) for target in paths]
    assert "a.toml" in said[0]
    logs = [read_log(paths[0], tmp_path / "a.toml"), Log.load(paths[1]), read_log(paths[2])]
    assert logs[2].fingerprint() == logs[1].fingerprint()
    for name, values in logs[0].columns().items():
        np.testing.assert_array_equal(values, logs[1].columns()[name.replace("/numeric", "/observation")], err_msg=name)
    VISITS.write_parquet(tmp_path / "visits.parquet")
    columns = tmp_path / "columns.json"
    columns.write_text(json.dumps({"observation": ["age"], "action": "dose", "episode": "patient", "step": "hour"}))
    convert(tmp_path / "visits.parquet", tmp_path / "visits.tidelog", columns)
    assert Log.load(tmp_path / "visits.tidelog").steps == VISITS.height
    with pytest.raises(ConfigError, match=r"did you mean '\.parquet'"):
        convert(source, tmp_path / "a.parket")
    with pytest.raises(LogError, match="exists"):
        convert(source, paths[0])
