"""Offending rows are written aside with all their reasons, once, and never over something else."""

import errno
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.data.spoils import PAIRS, ROLES, SPOILS, Spoil, repeats, spoil, typed, wards
from tests.data.test_checks import put, write
from tests.data.visits import mapping, visits
from tests.faults.scenarios import on
from tests.faults.simulated_disk import Recorder
from tidelog.cli import main
from tidelog.data.read import LINE, PROBLEMS, ROW, quarantine, read_log, validate
from tidelog.errors import ConfigError


def test_every_offending_row_is_written_with_all_its_reasons(tmp_path: Path) -> None:
    frame = put("p", (20, 7), *((row, 0) for row in range(1, 15)))(put("age", (3, "old"))(visits()))
    source, target = write(frame, tmp_path / "visits.csv"), tmp_path / "bad.csv"
    report = quarantine(source, mapping(), target)
    assert report == validate(source, mapping())
    bad = pl.read_csv(target, infer_schema=False)
    assert bad.columns[:3] == [ROW, LINE, PROBLEMS]
    assert bad[ROW].cast(int).to_list() == [*range(1, 15), 20]
    assert bad[LINE].cast(int).to_list() == [*range(2, 16), 21]
    assert bad[PROBLEMS][2] == "non-numeric text in 'age'; propensity out of range in 'p'"
    assert bad[PROBLEMS][0] == "propensity out of range in 'p'"
    written = pl.read_csv(source, infer_schema=False)[bad[ROW].cast(int).to_numpy() - 1]
    assert bad.drop(ROW, LINE, PROBLEMS).equals(written)


def test_nothing_is_written_where_no_row_offends(tmp_path: Path) -> None:
    target = tmp_path / "bad.csv"
    assert quarantine(visits(), mapping(), target).ok
    assert not quarantine(visits(), mapping(truncated="gone"), target).ok
    assert quarantine(tmp_path / "absent.csv", mapping(), target).errors[0].check == "unreadable file"
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path: Path) -> None:
    target = tmp_path / "bad.csv"
    target.write_text("precious")
    with pytest.raises(ConfigError, match="exists"):
        quarantine(visits(), mapping(), target)
    assert target.read_text() == "precious"
    with pytest.raises(ConfigError, match=r"\.csv"):
        quarantine(visits(), mapping(), tmp_path / "bad.xlsx")
    with pytest.raises(ConfigError, match="cannot be written"):
        quarantine(put("p", (1, 0))(visits()), mapping(), tmp_path / "nowhere" / "bad.csv")


def test_lists_and_doubled_names_come_out_as_they_stand_in_the_source(tmp_path: Path) -> None:
    frame = visits().with_columns(m=pl.Series([[1, 1, 1]] * 39)).with_columns(p=pl.lit(2.0))
    quarantine(frame, mapping(action_mask="m"), tmp_path / "bad.csv")
    bad = pl.read_csv(tmp_path / "bad.csv")
    assert set(bad["m"]) == {"1,1,1"}
    assert LINE not in bad.columns
    doubled = put("age", (1, "x"), (2, "y"))(visits()).with_columns(pl.lit(1).alias("age "))
    quarantine(write(doubled, tmp_path / "doubled.csv"), mapping(), tmp_path / "twice.csv")
    assert (tmp_path / "twice.csv").read_text().split("\n")[0].count("age") == 2


def test_a_quarantine_file_is_not_mistaken_for_a_source_of_its_own(tmp_path: Path) -> None:
    quarantine(put("p", (1, 0))(visits()), mapping(), tmp_path / "bad.csv")
    with pytest.raises(ConfigError, match=ROW):
        quarantine(tmp_path / "bad.csv", mapping(), tmp_path / "again.csv")
    assert not (tmp_path / "again.csv").exists()


def test_other_rows_are_kept_without_episodes_that_have_an_error(tmp_path):
    frame = pl.DataFrame({"who": [1, 1, 2, 2, 3, 3], "x": ["1", "2", "bad", "4", "5", "6"], "a": [0, 1] * 3})
    mapping = {"observation": "x", "action": "a", "episode": "who"}
    frame.write_csv(tmp_path / "log.csv")
    report = quarantine(tmp_path / "log.csv", mapping, tmp_path / "bad.csv", keep=tmp_path / "good.csv")
    assert not report.ok
    assert pl.read_csv(tmp_path / "bad.csv")["quarantine_row"].to_list() == [3]
    assert pl.read_csv(tmp_path / "good.csv")["who"].to_list() == [1, 1, 3, 3]
    assert read_log(tmp_path / "good.csv", mapping).steps == 4
    alone = {"observation": "x", "action": "a"}
    quarantine(tmp_path / "log.csv", alone, tmp_path / "b.csv", keep=tmp_path / "g.csv")
    assert pl.read_csv(tmp_path / "g.csv")["x"].to_list() == [1, 2, 4, 5, 6]
    frame.write_csv(tmp_path / "bare.csv", include_header=False)
    bare = {"observation": "column_2", "action": "column_3", "episode": "column_1", "header": False}
    quarantine(tmp_path / "bare.csv", bare, tmp_path / "d.csv", keep=tmp_path / "e.csv")
    assert read_log(tmp_path / "e.csv", bare).steps == 4
    with pytest.raises(ConfigError, match=r"good\.csv exists, nothing was written"):
        quarantine(tmp_path / "log.csv", mapping, tmp_path / "c.csv", keep=tmp_path / "good.csv")
    assert not (tmp_path / "c.csv").exists()


@pytest.mark.parametrize("fails_at", range(4))
def test_a_disk_that_fails_leaves_neither_of_the_two_files(fails_at: int, tmp_path: Path) -> None:
    """The rows of errors and the others: the operations before both are complete."""
    source, work = tmp_path / "a.csv", tmp_path / "work"
    pl.DataFrame({"o": [1.0, 2.0, 3.0], "a": [0, 1, 0], "r": ["1", "", "2"]}).write_csv(source)
    work.mkdir()
    mapping = {"observation": "o", "action": "a", "reward": "r"}
    words = [source, mapping, work / "bad.csv"]
    with on(Recorder(work, fails_at, errno.ENOSPC)), pytest.raises(ConfigError, match="No space left"):
        quarantine(*words, keep=work / "good.csv")
    assert not [*work.iterdir()]
    assert not quarantine(*words, keep=work / "good.csv").ok
    assert pl.read_csv(work / "good.csv").height == 2


# Every two errors in one file: both are reported, exactly their rows are in quarantine, and the rest is a log.


def named(pair: tuple[Spoil, ...]) -> str:
    return " + ".join(f"{one.name(False)}{'' if one.place == 0 else ' (last)'}" for one in pair)


def written(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


SAMPLE = (  # ordered files keep the rows of some checks as 32-bit numbers, and those of others as 64-bit numbers
    "missing value in 'age' + duplicate step in 'hour' (last)-.csv",
    "missing value in 'hour' + duplicate step in 'hour' (last)-.parquet",
    "missing value in 'patient' + next observation contradicts the following row in 'next_age'-.csv",
    "unknown category in 'ward' + logged action masked out in 'm'-.parquet",
    "steps cannot be ordered in 't' + steps cannot be ordered in 't' (last)-.csv",
    "flag neither true nor false in 'died' + cluster changes within an episode in 'who' (last)-.parquet",
)


def tiered(number: int, pair: tuple[Spoil, ...], ending: str) -> Any:
    """A case of the default tier, of the full one for every ninth pair, else of the slow one."""
    name = f"{named(pair)}-{ending}"
    return pytest.param(pair, ending, id=name, marks=[pytest.mark.slow] * (name not in SAMPLE and number % 9 > 0))


CASES = [tiered(i, pair, ending) for i, pair in enumerate(PAIRS) for j, ending in enumerate((".csv", ".parquet"))
         if i % 2 == j or f"{named(pair)}-{ending}" in SAMPLE]  # fmt: skip


@pytest.mark.sample(*SAMPLE)
@pytest.mark.parametrize(("pair", "ending"), CASES)
def test_two_errors_in_one_file_are_quarantined_and_the_rest_is_a_log(
    pair: tuple[Spoil, Spoil], ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ending == ".csv"
    mixed = "" if text else "episodes" if any(map(repeats, pair)) else "rows"
    frame, offending = spoil(wards(tmp_path, mixed), *pair)
    frame = frame if text else typed(frame)
    source, bad, columns = written(frame, tmp_path / f"log{ending}"), tmp_path / "bad.csv", tmp_path / "columns.json"
    columns.write_text(json.dumps({**ROLES, **pair[0].mapping, **pair[1].mapping}))

    report = quarantine(source, columns, bad)
    errors = {f"{one.check} in '{one.column}'": one for one in report.errors}
    for error in pair:
        assert {row for row, one in offending.items() if one is error} <= set(errors[error.name(text)].rows)
    aside = pl.read_csv(bad, infer_schema=False)
    assert aside[ROW].cast(int).to_list() == sorted(offending), report.text()
    for row, problems in zip(aside[ROW].cast(int), aside[PROBLEMS], strict=True):
        assert offending[row].name(text) in problems.split("; ")
    assert LINE not in aside.columns if not text else (aside[LINE].cast(int) == aside[ROW].cast(int) + 1).all()
    assert aside.drop(ROW, PROBLEMS, LINE, strict=False).equals(as_text(frame[aside[ROW].cast(int) - 1]))

    if f"{named(pair)}-{ending}" in SAMPLE:  # the command is the same door
        again = tmp_path / "again.csv"
        assert main(["log", "check", "--data", str(source), "--columns", str(columns), "--quarantine", str(again)]) == 4
        assert f"written: {again}" in capsys.readouterr().out
        assert again.read_bytes() == bad.read_bytes()

    kept = [row for row in range(1, frame.height + 1) if row not in offending]
    rest = written(frame[[row - 1 for row in kept]], tmp_path / f"rest{ending}")
    assert read_log(rest, columns).steps == len(kept) == frame.height - aside.height


WITHOUT_ROWS = {
    "missing column": {"extra": ["gone"]},
    "duplicate column name": {},
    "wrong length": {"next_action_mask": "two"},
}
DISCRETE = [one for one in SPOILS if not {"action", "next_action_mask"} & one.mapping.keys() and one.column != "n"]


@pytest.mark.sample(
    "missing column-missing value in 'age'",
    "duplicate column name-duplicate step in 'hour' (last)",
    "wrong length-logged action masked out in 'm'",
)
@pytest.mark.parametrize("error", DISCRETE, ids=lambda one: named((one,)))
@pytest.mark.parametrize("check", WITHOUT_ROWS)
def test_an_error_without_rows_leaves_those_of_the_other_in_quarantine(
    check: str, error: Spoil, tmp_path: Path
) -> None:
    frame, offending = spoil(wards(tmp_path), error)
    source = written(frame.with_columns(two=pl.lit("1,1"), again=pl.lit("0")), tmp_path / "log.csv")
    if check == "duplicate column name":
        source.write_text(source.read_text().replace("again", "sofa", 1))
    report = quarantine(source, {**ROLES, **error.mapping, **WITHOUT_ROWS[check]}, tmp_path / "bad.csv")
    assert check in {one.check for one in report.errors}
    assert pl.read_csv(tmp_path / "bad.csv")[ROW].to_list() == sorted(offending), report.text()


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """The cells as a CSV file holds them."""
    return pl.read_csv(frame.write_csv().encode(), infer_schema=False)


@pytest.mark.parametrize("mixed", ["", "rows"])
@pytest.mark.parametrize("error", [one for one in SPOILS if not repeats(one)], ids=lambda one: named((one,)))
@pytest.mark.sample(every=7)
def test_a_broken_row_in_the_middle_accuses_no_other_row(error: Spoil, mixed: str, tmp_path: Path) -> None:
    frame, offending = spoil(wards(tmp_path, mixed), error._replace(place=1))
    mapping = {**ROLES, **error.mapping} | ({"next_action_mask": None} if error.column == "m" else {})
    quarantine(written(typed(frame), tmp_path / "log.parquet"), mapping, tmp_path / "bad.csv")
    assert pl.read_csv(tmp_path / "bad.csv")[ROW].to_list() == sorted(offending)


def test_without_a_step_a_row_without_its_episode_accuses_no_neighbour(tmp_path: Path) -> None:
    lost = Spoil("missing value", "patient", (("patient", None),), 1)
    frame, offending = spoil(wards(tmp_path), lost)
    mapping = {**ROLES, "step": None, "time": None}
    quarantine(written(frame, tmp_path / "log.csv"), mapping, tmp_path / "bad.csv")
    assert pl.read_csv(tmp_path / "bad.csv")[ROW].to_list() == sorted(offending)
