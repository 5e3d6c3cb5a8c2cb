"""Every error by a broken file of its own, at the right rows, and nothing else said."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from tests.data.visits import MASKS, NEXT, mapping, visits, with_next
from tidelog.data import checks as checks
from tidelog.data.columns import Columns
from tidelog.data.inspect import describe_table
from tidelog.data.log import Log
from tidelog.data.raw import CHECKS
from tidelog.data.read import open_log, read_log, validate
from tidelog.errors import ConfigError, LogError

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


@pytest.mark.parametrize(
    "case", [case for case in BROKEN if case.check not in ("empty log", "missing column")], ids=lambda case: case.check
)
@pytest.mark.sample(every=5)
def test_a_broken_cell_raises_no_other_error(case: Broken, tmp_path: Path) -> None:
    path = write(case.change(visits()), tmp_path / "broken.csv")
    others = {problem.check for problem in validate(path, mapping(**case.mapping)).errors} - {case.check}
    follow_ups = {
        "steps cannot be ordered",
        "duplicate step",
        "terminated before the last row",
        "logged action masked out",
    }
    assert others <= follow_ups | {"truncated before the last row"}


def test_the_clean_file_and_the_clean_file_with_next_observations_pass(tmp_path: Path) -> None:
    report = validate(write(visits(), tmp_path / "clean.csv"), mapping())
    assert report.ok, report.text()
    followed = validate(write(with_next(visits()), tmp_path / "next.csv"), mapping(**FOLLOWED))
    assert followed.ok, followed.text()
    assert not followed.warnings


def test_all_problems_stand_in_one_report(tmp_path: Path) -> None:
    frame = visits()
    for change in (put("age", (4, "x")), put("p", (5, 7)), put("r", (6, "nan")), put("dose", (7, 9))):
        frame = change(frame)
    report = validate(write(frame, tmp_path / "broken.csv"), mapping(truncated="gone"))
    found = {problem.check for problem in report.errors}
    assert found == {
        "non-numeric text",
        "propensity out of range",
        "NaN or infinity",
        "action out of range",
        "missing column",
    }


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
    assert read_log(visits_log).fingerprint() == open_log(visits_log).fingerprint()
    assert validate(visits_log) == open_log(visits_log).report
    assert validate("a,b\n1,2" * 1_000, mapping()).errors[0].check == "unreadable file"
    assert validate(17, mapping()).errors[0].check == "unreadable file"


def test_mappings_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text('observation = "age"\naction = "dose"\nreward = "r"\npropensty = "p"\n')
    problem = validate(visits(), path).errors[0]
    assert problem.check == "unknown mapping key"
    assert "did you mean 'propensity'?" in problem.found
    assert (
        validate(visits(), {"observation": "age", "action": "dose", "missing": "mean"}).errors[0].check == "bad mapping"
    )
    with pytest.raises(ConfigError, match="propensity"):
        read_log(visits(), path)


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
        ("changing shapes", "propensity", {"propensity": np.ones((4, 1))}),
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
    elsewhere |= {"flag neither true nor false", "unknown category", "unreadable image", "files differ"}
    elsewhere |= {"declared propensities", "contradicted propensities"}  # `test_declared.py`
    elsewhere |= {"unread ends"}  # `sources/test_arrays.py`
    elsewhere |= {"atoms"}  # `test_atoms.py`
    errors = {name for name, one in CHECKS.items() if one.level == "error"}
    assert errors == elsewhere | {case.check for case in BROKEN}
    with pytest.raises(LogError, match="unreadable file"):
        open_log(tmp_path)


RUN = [case for case in BROKEN if CHECKS[case.check].run is not None]


@pytest.mark.parametrize("case", RUN, ids=lambda case: f"{case.check}-{case.column}")
@pytest.mark.sample(every=5)
def test_a_check_that_is_switched_off_is_noticed(case: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, case.check, replace(CHECKS[case.check], run=None))
    path = write(case.change(visits()), tmp_path / "broken.csv")
    assert case.check not in {problem.check for problem in validate(path, mapping(**case.mapping)).problems}


def test_bounds_beyond_32_bits_are_refused_and_not_proposed() -> None:
    with pytest.raises(ConfigError, match="32-bit"):
        mapping(**{**CONTINUOUS, "bounds": (0, 1e39)})
    described = describe_table(visits().drop("dose").rename({"sofa": "dose"}).with_columns(pl.col("dose") * 1e300))
    assert described.proposed is not None
    assert described.proposed.bounds is None
