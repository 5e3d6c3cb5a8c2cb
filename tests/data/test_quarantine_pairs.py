"""Every two errors in one file: both are reported, exactly their rows are in quarantine, and the rest is a log."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.data.spoils import ELSEWHERE, PAIRS, ROLES, SPOILS, Spoil, repeats, spoil, typed, wards
from tidelog.cli import main
from tidelog.data.raw import CHECKS
from tidelog.data.read import LINE, PROBLEMS, ROW, quarantine, read_log


def named(pair: tuple[Spoil, ...]) -> str:
    return " + ".join(f"{one.name(False)}{'' if one.place == 0 else ' (last)'}" for one in pair)


def write(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


SAMPLE = (  # ordered files keep the rows of some checks as 32-bit numbers, and those of others as 64-bit numbers
    "missing value in 'age' + duplicate step in 'hour' (last)-.csv",
    "missing value in 'hour' + duplicate step in 'hour' (last)-.parquet",
    "missing value in 'patient' + next observation contradicts the following row in 'next_age'-.csv",
    "unreadable image in 'photo' + logged action masked out in 'm'-.parquet",
    "steps cannot be ordered in 't' + steps cannot be ordered in 't' (last)-.csv",
    "flag neither true nor false in 'died' + cluster changes within an episode in 'who' (last)-.parquet",
)


@pytest.mark.sample(*SAMPLE)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_two_errors_in_one_file_are_quarantined_and_the_rest_is_a_log(
    pair: tuple[Spoil, Spoil], ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ending == ".csv"
    mixed = "" if text else "episodes" if any(map(repeats, pair)) else "rows"
    frame, offending = spoil(wards(tmp_path, mixed), *pair)
    frame = frame if text else typed(frame)
    source, bad, columns = write(frame, tmp_path / f"log{ending}"), tmp_path / "bad.csv", tmp_path / "columns.json"
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

    again = tmp_path / "again.csv"
    assert main(["data", "validate", "--data", str(source), "--columns", str(columns), "--quarantine", str(again)]) == 4
    assert f"written: {again}" in capsys.readouterr().out
    assert again.read_bytes() == bad.read_bytes()

    kept = [row for row in range(1, frame.height + 1) if row not in offending]
    rest = write(frame[[row - 1 for row in kept]], tmp_path / f"rest{ending}")
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
    source = write(frame.with_columns(two=pl.lit("1,1"), again=pl.lit("0")), tmp_path / "log.csv")
    if check == "duplicate column name":
        source.write_text(source.read_text().replace("again", "sofa", 1))
    report = quarantine(source, {**ROLES, **error.mapping, **WITHOUT_ROWS[check]}, tmp_path / "bad.csv")
    assert check in {one.check for one in report.errors}
    assert pl.read_csv(tmp_path / "bad.csv")[ROW].to_list() == sorted(offending), report.text()


def test_a_ragged_file_is_reported_and_leaves_no_quarantine(tmp_path: Path) -> None:
    frame, _ = spoil(wards(tmp_path), SPOILS[0])
    source = write(frame, tmp_path / "log.csv")
    source.write_text(source.read_text() + "1,2\n")
    assert [one.check for one in quarantine(source, ROLES, tmp_path / "bad.csv").errors] == ["ragged rows"]
    assert not (tmp_path / "bad.csv").exists()


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """The cells as a CSV file holds them."""
    return pl.read_csv(frame.write_csv().encode(), infer_schema=False)


@pytest.mark.parametrize("mixed", ["", "rows"])
@pytest.mark.parametrize("error", [one for one in SPOILS if not repeats(one)], ids=lambda one: named((one,)))
@pytest.mark.sample(every=7)
def test_a_broken_row_in_the_middle_accuses_no_other_row(error: Spoil, mixed: str, tmp_path: Path) -> None:
    frame, offending = spoil(wards(tmp_path, mixed), error._replace(place=1))
    mapping = {**ROLES, **error.mapping} | ({"next_action_mask": None} if error.column == "m" else {})
    quarantine(write(typed(frame), tmp_path / "log.parquet"), mapping, tmp_path / "bad.csv")
    assert pl.read_csv(tmp_path / "bad.csv")[ROW].to_list() == sorted(offending)


def test_without_a_step_a_row_without_its_episode_accuses_no_neighbour(tmp_path: Path) -> None:
    lost = Spoil("missing value", "patient", (("patient", None),), 1)
    frame, offending = spoil(wards(tmp_path), lost)
    mapping = {**ROLES, "step": None, "time": None}
    quarantine(write(frame, tmp_path / "log.csv"), mapping, tmp_path / "bad.csv")
    assert pl.read_csv(tmp_path / "bad.csv")[ROW].to_list() == sorted(offending)


def test_every_error_that_names_rows_is_in_a_pair() -> None:
    errors = {name for name, one in CHECKS.items() if one.level == "error"}
    assert {one.check for one in SPOILS} | ELSEWHERE == errors
    assert {named((one,)) for pair in PAIRS for one in pair} == {named((one,)) for one in SPOILS}
