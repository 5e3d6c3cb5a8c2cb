"""Rare cases of logs and their checks, each by hand."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.data.clicks import interactions
from tests.data.visits import mapping, visits
from tidelog import Log, read_log
from tidelog.data import checks, export, inspect, parse, storage
from tidelog.data import log as logs
from tidelog.data import read as quarantine
from tidelog.data.inspect import describe_table
from tidelog.data.parse import ParsedTable
from tidelog.data.raw import Column, RawAction, RawLog
from tidelog.data.read import open_log
from tidelog.data.statistics import _labels
from tidelog.data.storage import holds_objects
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.recommend.read import open_interactions
from tidelog.types import Codes, Continuous, Discrete, Image, MultiDiscrete, Spec, Vector


@pytest.fixture(scope="module")
def log() -> Log:
    return read_log(visits(), mapping())


def test_a_log_and_its_transitions_say_what_they_hold(log: Log) -> None:
    assert repr(log).startswith(f"Log({log.steps:,} steps, 12 episodes, observation {{")
    assert repr(log).endswith(f"action {type(log.spec.action).__name__})")
    chosen = log.transitions[[0, 2, 5]]
    assert (len(log.transitions), len(chosen)) == (log.steps, 3)
    np.testing.assert_array_equal(chosen.truncated, np.asarray(log.truncated)[[0, 2, 5]])
    assert log.propensity is not None
    np.testing.assert_array_equal(chosen.propensity, log.propensity[[0, 2, 5]])
    assert replace(log, propensity=None).transitions[[1]].propensity is None


def test_a_part_that_an_origin_names_must_be_there(log: Log) -> None:
    assert log.part_again({"episodes": [0, 3]}).episode_ids.tolist() == log.episode_ids[[0, 3]].tolist()
    with pytest.raises(LogError, match=r"the origin of the log: episodes has 12\. fix: restore the file"):
        log.part_again({"episodes": [0, 12]})


def raw(**changes: Any) -> RawLog:
    columns: dict[str, Any] = {"source": "made", "rows": 3, "numbers": np.arange(3), "has_lines": False}
    return RawLog(**columns | {"observation": {}, "action": None, "reward": None} | changes)


def test_rows_without_episodes_are_all_placed_and_without_an_action_nothing_is_counted() -> None:
    assert raw().unplaced.tolist() == [False] * 3
    assert checks.action_count(raw()) == 0
    for read in (logs._action_space, logs._action):
        with pytest.raises(LogError, match=r"the log has no action\. fix: name the action column or array"):
            read(raw())
    action = RawAction("multi", (Column("a", np.zeros(3)), Column("b", np.zeros(3))), sizes=(2, 3, 4))
    assert list(checks.action_out_of_range(raw(action=action))) == []  # the number of columns is another check's


def test_a_name_that_is_taken_gets_an_underscore() -> None:
    sheet = export._Sheet.__new__(export._Sheet)
    sheet.columns = {"action": [1]}
    assert [sheet.add(name, []) for name in ("action", "reward", "action")] == ["action_", "reward", "action__"]


SPEC = Spec({"x": Vector(2)}, Discrete(3))
PLAIN = {"position": np.zeros(1, np.int32), "episode_ids": np.zeros(1, np.int64), "action": np.zeros(1, np.int32)}
SEEN = {"x": np.zeros((1, 2), np.float32)}


@pytest.mark.parametrize(
    ("spec", "plain", "words"),
    [
        (SPEC, PLAIN | {"position": np.zeros(0, np.int32)}, "the log has no rows"),
        (replace(SPEC, action=SimpleNamespace()), PLAIN, "actions of kind SimpleNamespace in a log"),
        (replace(SPEC, observation={"x": SimpleNamespace()}), PLAIN, "observations of kind SimpleNamespace in a log"),
        (SPEC, PLAIN | {"action": None}, "the column 'action' is missing"),
        (
            Spec({"x": Vector(2)}, MultiDiscrete((2, 3)), masked=True),
            PLAIN | {"action": np.zeros((1, 2), np.int32), "action_mask": np.zeros((1, 2), bool)},
            "masks of actions of kind MultiDiscrete",
        ),
    ],
)  # fmt: skip
def test_saved_columns_that_no_log_has(spec: Any, plain: Any, words: str) -> None:
    with pytest.raises(LogError, match=words):
        storage.check_structure(spec, SEEN, plain, {})


def test_a_column_is_listed_once_and_fits_into_memory(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry: Any = SimpleNamespace(column="reward")
    with pytest.raises(LogError, match="a column is listed twice"):
        storage.read_columns(storage.LOG, tmp_path, [entry, entry], {})
    log.save(tmp_path / "log")
    monkeypatch.setattr(storage, "shortage", lambda size: "about 9.0 GB of memory are needed, 1.0 MB are available")
    interactions().save(tmp_path / "clicks")
    for reader, folder, fix in (
        (open_log, "log", "open it with memory_map=True (--memory-map)"),
        (open_interactions, "clicks", "free memory, or save fewer events"),
    ):
        with pytest.raises(LogError) as caught:
            reader(tmp_path / folder)
        (problem,) = caught.value.report.errors
        assert problem.found == "about 9.0 GB of memory are needed, 1.0 MB are available"
        assert problem.fix == fix
    assert open_log(tmp_path / "log", memory_map=True).steps == log.steps


def test_a_damaged_part_of_a_lazy_table_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    for path in (good, bad):
        pl.DataFrame({"x": np.arange(1000)}).write_parquet(path)
    both = pl.scan_parquet([good, bad])
    parts = tuple(ParsedTable.of(pl.scan_parquet(path), path.name) for path in (good, bad))
    table = replace(ParsedTable.of(both, "both"), parts=parts)
    assert table.rows == 2000
    content = bad.read_bytes()
    bad.write_bytes(content[:40] + bytes(len(content) - 80) + content[-40:])
    with pytest.raises(LogError) as caught:
        table.series("x")
    assert caught.value.report.source == "bad.parquet"


def test_unused_days_are_numbers_of_days() -> None:
    times = pl.Series("day", ["2026-01-02 23:00", "2026-01-03 01:00", None]).str.to_datetime()
    found = parse._codes(times)
    assert (found.values[1] - found.values[0], found.missing.tolist()) == (1, [2])
    assert parse._codes(times.dt.time()).values[1] == 3_600_000_000_000


def test_tables_need_discrete_actions_and_few_states(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not logs.is_tabular(replace(log, spec=replace(log.spec, action=Continuous((-1.0,), (1.0,)))))
    monkeypatch.setattr(logs, "LARGEST", 1)
    assert not logs.is_tabular(log)


def test_features_without_names_are_numbered_and_a_picture_is_one() -> None:
    spec = Spec({"x": Vector(2), "ward": Codes((2, 2), names=("a", "b")), "scan": Image(2, 2, 1)}, Discrete(2))
    labels = [_labels(SimpleNamespace(spec=spec), name) for name in spec.observation]  # type: ignore[arg-type]
    assert labels == [["x[0]", "x[1]"], ["a", "b"], ["scan"]]


def test_clusters_of_equal_returns_and_of_words() -> None:
    assert checks.intraclass_correlation(np.asarray([0, 0, 1, 1]), np.ones(4)) == (0.0, 1.0)
    assert checks.intraclass_correlation(np.zeros(4, int), np.arange(4.0)) == (0.0, 1.0)
    words = checks.codes_of(np.asarray(["b", "a", "b"]))
    assert words[0] == words[2] != words[1]
    days = checks.codes_of(np.asarray(["2026-01-02T23:00", "2026-01-03", "2026-01-03T04"], "datetime64[s]"))
    assert (days - days[0]).tolist() == [0, 1, 1]
    candidate = checks.ClusterCandidate("store", 12, float("nan"), float("nan"), True, "name it")
    assert candidate.found == "12 different values over the episodes"


def test_two_columns_that_may_be_clusters_are_both_named() -> None:
    count = 1000
    frame = pl.DataFrame({
        "session_id": np.arange(count) // 2, "store_id": np.arange(count) // 50, "customer_id": np.arange(count) // 100,
        "age": np.arange(count) % 7, "action": np.arange(count) % 3, "reward": np.arange(count) % 2,
    })  # fmt: skip
    described = describe_table(frame)
    assert 'cluster = "store_id"' in described.toml or 'cluster = "customer_id"' in described.toml
    assert "could be clusters too; use the column with the fewest values whose episodes are dep" in " ".join(
        described.text().split()
    )


def test_next_observations_are_used_where_each_has_one() -> None:
    columns = {"obs_a": [0.1, 0.2] * 10, "obs_b": [0.3, 0.4] * 10, "a": [0, 1] * 10}
    frame = pl.DataFrame(columns | {"next_obs_a": [0.2, 0.5] * 10, "next_obs_b": [0.1, 0.2] * 10})
    proposed = describe_table(frame).proposed
    assert proposed is not None
    assert proposed.next_observation == ("next_obs_a", "next_obs_b")


def test_interactions_of_which_no_row_is_named_have_no_copy() -> None:
    report: Any = SimpleNamespace(ok=False, errors=[SimpleNamespace(count=0)])
    described: Any = SimpleNamespace(ranking="recommender-bcq", ranking_report=report, named=())
    commands = inspect.Description._interaction_commands(described, "clicks.csv", {"user": "u", "item": "an item"})
    assert commands == ["  tidelog data validate --data clicks.csv --user u --item 'an item'"]
    described.ranking = None
    assert len(inspect.Description._interaction_commands(described, "clicks.csv", {})) == 1


def test_copies_of_another_length_are_no_copies() -> None:
    order: Any = SimpleNamespace(last=np.asarray([False, True, True]), rows=np.arange(3), ids=np.arange(2))
    made: Any = SimpleNamespace(order=order, rows=3)
    groups: Any = SimpleNamespace(later=np.asarray([1]), first=np.asarray([0]), times=np.asarray([2]))
    assert checks._verified(made, [np.zeros(3)], groups) is None


def test_an_older_file_that_cannot_be_deleted_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(quarantine, "delete", failing)
    with pytest.raises(ConfigError, match=r"aside\.csv cannot be written: Permission denied; what was there is unch"):
        quarantine.delete_older(tmp_path / "aside.csv")


def test_without_rewards_a_column_is_a_cluster_by_its_name_alone() -> None:
    visits_of = np.repeat(np.arange(40), 25)
    log = Log.from_arrays(
        observation=np.zeros((1000, 1)),
        action=np.arange(1000) % 2,
        actions=2,
        reward=None,
        extra={"user_id": visits_of},
    )
    (found,) = checks.cluster_candidates(log)
    assert (found.name, found.values, found.named) == ("user_id", 40, True)
    assert np.isnan(found.correlation)
    assert found.found == "40 different values over the episodes"


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_bounds_of_actions_are_finite_and_in_order(low: float, high: float) -> None:
    assert Continuous((0.0, 1.0), (0.0, 2.0)).size == 2
    with pytest.raises(SpecError, match=r"action bounds = \[.*\]: expected finite numbers with low <= high"):
        Continuous((0.0, low), (0.0, high))
    with pytest.raises(SpecError, match="low has 2 bounds and high has 1: expected equal lengths"):
        Continuous((0.0, 1.0), (0.0,))


UNFINISHED = b"\x93NUMPY\x01\x00\x06\x00(((((("  # a header that ends within its brackets


@pytest.mark.parametrize(
    "content", [b"no array", b"\x93NUMPY\x01\x00\x10\x00not a dictionary", b"\x93NUMPY\x09\x00", UNFINISHED]
)
def test_what_has_no_header_holds_no_objects(content: bytes) -> None:
    assert not holds_objects(BytesIO(content))
    with BytesIO() as stream:
        np.lib.format.write_array(stream, np.array([None]), allow_pickle=True)
        stream.seek(0)
        assert holds_objects(stream)
