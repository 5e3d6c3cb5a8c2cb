"""Every error by a broken file of its own, at the right rows, and nothing else said; the reports, and rare cases."""

import gzip
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from tests.data.clicks import interactions
from tests.data.visits import MASKS, NEXT, mapping, visits, with_next
from tidelog.data import checks as checks
from tidelog.data import dependence, export, inspect, parse, storage
from tidelog.data import log as logs
from tidelog.data import read as quarantine
from tidelog.data.columns import Columns
from tidelog.data.inspect import describe_table
from tidelog.data.log import Log
from tidelog.data.parse import ParsedTable
from tidelog.data.raw import CHECKS, Column, Problem, RawAction, RawLog, Report
from tidelog.data.read import read_log, validate
from tidelog.data.statistics import labels_of_leaf
from tidelog.data.storage import holds_objects
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.recommend.interactions import Interactions
from tidelog.types import Codes, Continuous, Discrete, Image, MultiDiscrete, Spec, Vector

Frame = pl.DataFrame


class Broken(NamedTuple):
    check: str
    column: str | None
    rows: tuple[int, ...]
    change: Callable[[Frame], Frame]
    mapping: Mapping[str, Any] = MappingProxyType({})


def put(name: str, *places: tuple[int, object]) -> Callable[[Frame], Frame]:
    """Set cells (row from 1) of a column, all columns as text, as they stand in a file."""

    def change(frame: Frame) -> Frame:
        values = frame[name].cast(pl.String).to_list()
        for row, value in places:
            values[row - 1] = None if value is None else str(value)
        return frame.with_columns(pl.Series(name, values, pl.String))

    return change


def masks(row: int, *allowed: int) -> Callable[[Frame], Frame]:
    def change(frame: Frame) -> Frame:
        for name, flag in zip(MASKS, allowed, strict=True):
            frame = put(name, (row, flag))(frame)
        return frame

    return change


CONTINUOUS = {"action": "sofa", "actions": None, "action_mask": None, "propensity": None, "bounds": (0, 30)}
FOLLOWED = {"next_observation": NEXT}
BROKEN = [
    Broken("missing column", "agee", (), lambda f: f, {"observation": ["agee", "sofa"]}),
    Broken("duplicate column name", "age", (), lambda f: f.with_columns(age2="age").rename({"age2": "age "})),
    Broken("wrong length", "action_mask", (), lambda f: f, {"action_mask": MASKS[:2]}),
    Broken("wrong length", "action", (), lambda f: f, {**CONTINUOUS, "bounds": ([0, 0], [30, 30])}),
    Broken("changing shapes", "m", (5,), lambda f: f.with_columns(m=pl.lit("1,1,1")).pipe(put("m", (5, "1,1"))),
           {"action_mask": "m"}),
    Broken("empty log", None, (), lambda f: f.head(0)),
    Broken("missing value", "age", (2, 7), put("age", (2, None), (7, "NA"))),
    Broken("missing value", "ward", (3,), put("ward", (3, None))),
    Broken("missing value", "patient", (3,), put("patient", (3, ""))),
    Broken("missing value", "next_age", (4,), lambda f: with_next(f).pipe(put("next_age", (4, None))), FOLLOWED),
    Broken("non-numeric text", "age", (4,), put("age", (4, "sixty"))),
    Broken("non-numeric text", "dose", (1,), put("dose", (1, "two"))),
    Broken("non-numeric text", "died", (2,), put("died", (2, "maybe"))),
    Broken("NaN or infinity", "age", (1, 9), put("age", (1, "nan"), (9, "inf"))),
    Broken("NaN or infinity", "sofa", (2,), put("sofa", (2, "1e39"))),
    Broken("NaN or infinity", "r", (2,), put("r", (2, "-inf"))),
    Broken("rewards lost in 32 bits", "r", (), lambda f: f.with_columns(pl.col("r") + 1e9)),
    Broken("sparse codes", "dose", (3,), put("dose", (3, 10**9)), {"actions": None, "action_mask": None}),
    Broken("action out of range", "dose", (3,), put("dose", (3, 3))),
    Broken("action out of range", "dose", (3,), put("dose", (3, -1))),
    Broken("action out of range", "dose", (3,), put("dose", (3, 1.5))),
    Broken("action out of range", "dose", (3,), put("dose", (3, -1)), {"actions": None, "action_mask": None}),
    Broken("action out of bounds", "sofa", (3, 6), put("sofa", (3, 30.5), (6, -1)), CONTINUOUS),
    Broken("logged action masked out", "m0 .. m2", (1,), masks(1, 0, 1, 1)),
    Broken("mask allows nothing", "m0 .. m2", (2,), masks(2, 0, 0, 0)),
    Broken("propensity out of range", "p", (1, 2, 3), put("p", (1, 0), (2, -0.1), (3, 1.01))),
    Broken("propensity out of range", "p", (1,), put("p", (1, 0), (3, 1.5)), {**CONTINUOUS, "propensity": "p"}),
    Broken("missing value", "who", (3,), lambda f: f.with_columns(who="patient").pipe(put("who", (3, None))),
           {"cluster": "who"}),
    Broken("cluster changes within an episode", "who", (2, 3, 5),
           lambda f: f.with_columns(who="patient").pipe(put("who", (1, "p9"), (5, "p9"))), {"cluster": "who"}),
    Broken("negative weight", "w", (6,), lambda f: f.with_columns(w=1.0).pipe(put("w", (6, -1))), {"weight": "w"}),
    Broken("elapsed time", "h", (6,), lambda f: f.with_columns(h=1.0).pipe(put("h", (6, -1))), {"elapsed": "h"}),
    Broken("duplicate step", "hour", (2,), put("hour", (2, 0))),
    Broken("steps cannot be ordered", "t", (5,), lambda f: f.with_columns(t="hour").pipe(put("t", (5, 0))),
           {"step": None, "time": "t"}),
    Broken("terminated before the last row", "died", (1,), put("died", (1, 1))),
    Broken("truncated before the last row", "left", (4,), put("left", (4, 1))),
    Broken("next observation contradicts the following row", "next_age", (4,),
           lambda f: with_next(f).pipe(put("next_age", (4, 99))), FOLLOWED),
    Broken("next observation contradicts the following row", "next_ward", (4,),
           lambda f: with_next(f).pipe(put("next_ward", (4, "home"))), FOLLOWED),
    Broken("next mask contradicts the following row", "n0 .. n2", (1,), lambda f: f.with_columns(
        pl.lit("1").alias(f"n{place}") for place in range(3)).pipe(lambda g: masks(2, 0, 1, 0)(g)),
           {"next_action_mask": ["n0", "n1", "n2"]}),
]  # fmt: skip


FOLLOW_UPS = ("steps cannot be ordered", "duplicate step", "terminated before the last row",
              "truncated before the last row", "logged action masked out")  # fmt: skip


def write(frame: Frame, path: Path) -> Path:
    frame.write_csv(path)
    text = path.read_text()
    header, _, rest = text.partition("\n")
    path.write_text(header.replace("age ", "age") + "\n" + rest)
    return path


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case.check}-{case.column}")
@pytest.mark.sample(every=3)
def test_each_broken_file_is_refused_at_its_rows(case: Broken, tmp_path: Path) -> None:
    path = write(case.change(visits()), tmp_path / "broken.csv")
    report = validate(path, mapping(**case.mapping))
    found = [problem for problem in report.errors if problem.check == case.check and problem.column == case.column]
    assert len(found) == 1, report.text()
    if case.check != "next mask contradicts the following row":
        assert found[0].rows == case.rows
        assert found[0].count == len(case.rows)
        assert found[0].lines == tuple(row + 1 for row in case.rows)
    assert found[0].found
    assert found[0].expected
    assert found[0].fix
    with pytest.raises(LogError) as caught:
        read_log(path, mapping(**case.mapping))
    assert caught.value.report == report
    assert case.check in str(caught.value)
    if case.check not in ("empty log", "missing column"):
        assert {problem.check for problem in report.errors} <= {case.check, *FOLLOW_UPS}


def raw_file(check: str, content: bytes, name: str) -> Any:
    return pytest.param(check, content, name, id=f"{check}-{name}-{len(content)}")


CLEAN = visits().write_csv().encode()
ZIPPED = gzip.compress(CLEAN)


@pytest.mark.parametrize(
    ("check", "content", "name"),
    [
        raw_file("unreadable file", b"", "a.csv"),
        raw_file("unreadable file", b"\n\n", "a.csv"),
        raw_file("unreadable file", ZIPPED[: len(ZIPPED) // 2], "a.csv.gz"),
        raw_file("unreadable file", ZIPPED[:100] + b"\x00\x01" + ZIPPED[102:], "a.csv.gz"),
        raw_file("unreadable file", CLEAN, "a.csv.gz"),
        raw_file("unreadable file", CLEAN.decode().encode("utf-16"), "a.csv"),
        raw_file("unreadable file", CLEAN.replace(b"icu", b"\xff\xfe"), "a.csv"),
        raw_file("unreadable file", CLEAN + b'"never closed', "a.csv"),
        raw_file("unreadable file", b"PAR1 not quite", "a.parquet"),
        raw_file("unreadable file", b"", "a.parquet"),
        raw_file("unreadable file", b"", "a.arrow"),
        raw_file("unreadable file", b"hello", "a.xlsx"),
        raw_file("ragged rows", CLEAN[:-9], "a.csv"),
        raw_file("ragged rows", CLEAN + b"1,2,3\n", "a.csv"),
        raw_file("ragged rows", CLEAN.replace(b",icu,", b",icu,icu,", 1), "a.csv"),
        raw_file("empty log", CLEAN.split(b"\n")[0], "a.csv"),
    ],
)
def test_files_that_cannot_be_read_are_reports_and_not_tracebacks(
    check: str, content: bytes, name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert [problem.check for problem in validate(path, mapping()).errors] == [check]
    with pytest.raises(LogError, match=check):
        read_log(path, mapping())


def test_ragged_rows_are_named_by_row_and_line(tmp_path: Path) -> None:
    path = tmp_path / "ragged.csv"
    path.write_bytes(b'a,b,note\n1,2,"x\ny"\n3,4\n5,6,z,z\n')
    problem = validate(path, Columns(observation="a", action="b", reward=None)).errors[0]
    assert (problem.check, problem.rows, problem.lines, problem.count) == ("ragged rows", (2, 3), (4, 5), 2)
    assert (problem.found, problem.fix.startswith("correct these lines")) == ("2, 4 fields", True)
    path.write_bytes(b"a,b,note\n1,2,x\n3,4\n")
    cut = validate(path, Columns(observation="a", action="b", reward=None)).errors[0]
    assert (cut.rows, cut.found) == ((2,), "2 fields")
    assert cut.fix == "the last line is incomplete: export or copy the file again"


def test_a_missing_file_a_saved_log_and_a_foreign_object_are_refused(tmp_path: Path) -> None:
    assert validate("/nowhere/log.csv", mapping()).errors[0].found == "the file does not exist"
    visits_log = tmp_path / "visits.tidelog"
    read_log(visits(), mapping()).save(visits_log)
    with pytest.raises(ConfigError, match="only tables use a mapping"):
        read_log(visits_log, mapping())
    assert read_log(visits_log).fingerprint() == Log.load(visits_log).fingerprint()
    assert validate(visits_log) == Log.load(visits_log).report
    assert validate("a,b\n1,2" * 1_000, mapping()).errors[0].check == "unreadable file"
    assert validate(17, mapping()).errors[0].check == "unreadable file"


ARRAYS: dict[str, Any] = {
    "observation": np.zeros((4, 2), np.float32), "action": np.array([0, 1, 0, 1]), "reward": np.arange(4.0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("check", "column", "change"),
    [
        ("wrong length", "reward", {"reward": np.zeros(3)}),
        ("wrong length", "observation", {"observation": np.zeros((5, 2))}),
        ("wrong length", "action_mask", {"action_mask": np.ones((4, 3), bool), "actions": 2}),
        ("changing shapes", "observation", {"observation": [[1.0], [1.0, 2.0], [1.0], [1.0]]}),
        ("changing shapes", "observation", {"observation": np.zeros((4, 2, 2))}),
        ("missing column", "observation", {"observation": None}),
        ("missing column", "observation", {"observation": {}}),
        ("missing column", "action", {"action": None}),
        ("changing shapes", "propensity", {"propensity": np.ones((4, 2))}),
        ("changing shapes", "next_observation 'observation'", {"next_observation": np.zeros((4, 3))}),
        ("code out of range", "observation", {"observation": np.array([0, 1, -1, 0])}),
        ("flag neither true nor false", "terminated", {"terminated": np.array([0, 0, 2, 0])}),
        ("non-numeric text", "reward", {"reward": np.array(["1", "2", "3", "4"])}),
        ("NaN or infinity", "observation", {"observation": np.array([0.0, np.nan, 1.0, 2.0])}),
        ("NaN or infinity", "reward", {"reward": np.array([0.0, np.inf, 1.0, 2.0])}),
        ("empty log", None, {"observation": np.zeros((0, 2)), "action": np.zeros(0, int), "reward": np.zeros(0)}),
    ],
)
def test_arrays_that_are_no_log(check: str, column: str | None, change: dict[str, Any]) -> None:
    with pytest.raises(LogError, match=check) as caught:
        Log.from_arrays(**{**ARRAYS, **change})
    assert (check, column) in [(problem.check, problem.column) for problem in caught.value.report.errors]


def test_npz_files_that_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    np.savez(path, **ARRAYS, rewrad=np.zeros(4))
    with pytest.raises(LogError, match="did you mean 'reward'"):
        read_log(path)
    np.savez(path, **{**ARRAYS, "reward": np.array([{}], object)})
    with pytest.raises(LogError, match="unreadable file"):
        read_log(path)
    path.write_bytes(path.read_bytes()[:200])
    assert validate(path).errors[0].check == "unreadable file"
    np.savez(path, observation=np.zeros(3))
    with pytest.raises(LogError, match="missing column"):
        read_log(path)


def test_every_error_has_a_broken_file(tmp_path: Path) -> None:
    elsewhere = {"unreadable file", "ragged rows", "unknown mapping key", "bad mapping", "code out of range"}
    elsewhere |= {"flag neither true nor false", "unknown category", "files differ"}
    elsewhere |= {"declared propensities", "contradicted propensities"}  # `test_declared.py`
    elsewhere |= {"unread ends"}  # `sources/test_arrays.py`
    elsewhere |= {"atoms"}  # `test_atoms.py`
    errors = {name for name, one in CHECKS.items() if one.level == "error"}
    assert errors == elsewhere | {case.check for case in BROKEN}
    with pytest.raises(LogError, match="unreadable file"):
        Log.load(tmp_path)


# Rare cases of logs and their checks, each by hand.


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
        (Log.load, "log", "open it with memory_map=True (--memory-map)"),
        (Interactions.load, "clicks", "free memory, or save fewer events"),
    ):
        with pytest.raises(LogError) as caught:
            reader(tmp_path / folder)
        (problem,) = caught.value.report.errors
        assert problem.found == "about 9.0 GB of memory are needed, 1.0 MB are available"
        assert problem.fix == fix
    assert Log.load(tmp_path / "log", memory_map=True).steps == log.steps


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
    columns = Columns(observation="x", action="a", reward=None)
    found, of_time = (
        next(parse._unused(parse.ParsedTable.of(pl.DataFrame([one]), "a frame"), columns))
        for one in (times, times.dt.time())
    )
    assert (found.values[1] - found.values[0], found.missing.tolist()) == (1, [2])
    assert of_time.values[1] == 3_600_000_000_000


def test_tables_need_discrete_actions_and_few_states(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not logs.is_tabular(replace(log, spec=replace(log.spec, action=Continuous((-1.0,), (1.0,)))))
    monkeypatch.setattr(logs, "LARGEST", 1)
    assert not logs.is_tabular(log)


def test_features_without_names_are_numbered_and_a_picture_is_one() -> None:
    spec = Spec({"x": Vector(2), "ward": Codes((2, 2), names=("a", "b")), "scan": Image(2, 2, 1)}, Discrete(2))
    labels = [labels_of_leaf(SimpleNamespace(spec=spec), name) for name in spec.observation]  # type: ignore[arg-type]
    assert labels == [["x[0]", "x[1]"], ["a", "b"], ["scan"]]


def test_clusters_of_equal_returns_and_of_words() -> None:
    assert dependence.intraclass_correlation(np.asarray([0, 0, 1, 1]), np.ones(4)) == (0.0, 1.0)
    assert dependence.intraclass_correlation(np.zeros(4, int), np.arange(4.0)) == (0.0, 1.0)
    words = dependence.codes_of(np.asarray(["b", "a", "b"]))
    assert words[0] == words[2] != words[1]
    days = dependence.codes_of(np.asarray(["2026-01-02T23:00", "2026-01-03", "2026-01-03T04"], "datetime64[s]"))
    assert (days - days[0]).tolist() == [0, 1, 1]
    candidate = dependence.ClusterCandidate("store", 12, float("nan"), float("nan"), True, "name it")
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


def test_interactions_of_which_no_row_is_named_have_no_copy() -> None:
    report: Any = SimpleNamespace(ok=False, errors=[SimpleNamespace(count=0)])
    described: Any = SimpleNamespace(ranking="recommender-bcq", ranking_report=report, named=())
    commands = inspect.Description._interaction_commands(described, "clicks.csv", {"user": "u", "item": "an item"})
    assert commands == ["  tidelog log check --data clicks.csv --user u --item 'an item'"]
    described.ranking = None
    assert len(inspect.Description._interaction_commands(described, "clicks.csv", {})) == 1


def test_an_older_file_that_cannot_be_deleted_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(quarantine, "delete", failing)
    with pytest.raises(ConfigError, match=r"aside\.csv cannot be written: Permission denied; what was there is unch"):
        quarantine.delete_older(tmp_path / "aside.csv")


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


# Reports: readable, complete, and the same after JSON.


PROBLEM = Problem(
    "error", "missing value", "age", (3, 7), 2, "empty cells", "a value in every row", "fill " * 40, (4, 8)
)


def test_text_names_rows_and_lines_and_is_at_most_100_columns_wide() -> None:
    report = Report("visits.csv", 1_000, (PROBLEM,))
    assert report.lines[0] == "visits.csv: 1 error, 0 warnings, 0 notes, 1,000 rows read"
    assert report.lines[1] == "error: missing value in 'age', 2 rows: 3, 7 (lines 4, 8)"
    assert report.text() == "\n".join(report.lines)
    assert max(map(len, report.lines)) <= 100
    assert not report.ok


def test_only_the_first_ten_rows_are_listed_with_the_count() -> None:
    frame = visits().with_columns(age=float("nan"))
    problem = validate(frame, mapping()).errors[0]
    assert problem.rows == tuple(range(1, 11))
    assert problem.count == 39
    assert "39 rows: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..." in problem.text()


# The page of checks is complete, and the room is light to enter.


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text()


def test_the_lists_of_checks_are_the_registry() -> None:
    """Errors and notes by name, for the report explains them; warnings with their meanings."""
    for level, before in (("error", "a fix"), ("note", "what was done")):
        names = "; ".join(one.name for one in CHECKS.values() if one.level == level)
        assert f"{before}: {names}." in " ".join(PAGE.split()), f"paste into docs/data.md: {names}"
    rows = [f"| {one.name} | {one.meaning} |" for one in CHECKS.values() if one.level == "warning"]
    table = "\n".join(["| warning | meaning |", "|---|---|", *rows])
    assert f"\n\n{table}\n\n" in PAGE, f"paste into docs/data.md:\n{table}"
    assert all(one.meaning.endswith(".") for one in CHECKS.values())


def test_every_field_of_a_mapping_is_on_the_page() -> None:
    for name in Columns.__dataclass_fields__:
        assert f"`{name}`" in PAGE, name


def test_the_room_loads_neither_jax_nor_what_it_does_not_need() -> None:
    code = (
        "import sys; from tidelog.data import formats, inspect, read;"
        "print([name for name in ('jax', 'equinox', 'minari', 'gymnasium', 'pandas', 'h5py') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
