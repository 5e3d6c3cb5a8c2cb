"""Offending rows are written aside with all their reasons, once, and never over something else."""

import errno
from pathlib import Path

import polars as pl
import pytest

from tests.data.test_checks import put, write
from tests.data.visits import mapping, visits
from tests.faults.scenarios import on
from tests.faults.simulated_disk import Recorder
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
