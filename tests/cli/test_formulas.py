"""Words that a spreadsheet computes: said where a CSV file has them, and shown as text with --csv-safe."""

import csv
import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.cli.conftest import toy
from tests.training.runs import bc
from tidelog.data.parse import formula_note, write_csv

FORMULAS = [
    "=cmd|'/c calc'!A1",
    "+1+2",
    "-1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "=",
    "-",
    "+",
    "--1",
    "-1,5",
]
PLAIN = ["-1", "+2.5", "-.5e-3", "1e-5", "-inf", "NaN", "", "a=b", "mild", "'=1", "ä-1", "-3."]


def written(frame, **options):
    stream = io.BytesIO()
    write_csv(frame, stream, **options)
    return list(csv.reader(io.StringIO(stream.getvalue().decode(), newline="")))


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical])
def test_words_get_an_apostrophe_and_numbers_stay(kind):
    frame = pl.DataFrame({"=word": pl.Series([*FORMULAS, *PLAIN]).cast(kind), "number": -1.5, "none": None})
    head, *rows = written(frame, csv_safe=True)
    assert head == ["'=word", "number", "none"]
    assert [row[0] for row in rows] == [*(f"'{word}" for word in FORMULAS), *PLAIN]
    assert {row[1] for row in rows} == {"-1.5"}
    assert [row[0] for row in written(frame)[1:]] == [*FORMULAS, *PLAIN]
    assert "in the column '=word'. fix: add --csv-safe" in formula_note(frame, "x.csv")
    assert formula_note(pl.DataFrame({"word": PLAIN, "number": -1.5}), "x.csv") is None


def test_labels_that_become_equal_are_written():
    assert written(pl.DataFrame({"=a": [1], "'=a": [2]}), csv_safe=True) == [["'=a", "'=a"], ["1", "2"]]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a log of hostile words, and a run on it."""
    monkeypatch.chdir(tmp_path)
    toy(tmp_path, word=[FORMULAS[at % 2] for at in range(60)], x=-np.arange(60) / 60, action=["=a", "b"] * 30)
    tl.fit(bc(), tl.read_log("log.csv", "columns.toml"), 2, out="run", progress=False)
    return tmp_path


def test_commands_say_it_and_write_it_as_text(here, tidelog):
    for words in (["act", "run", "--data", "log.csv"], ["log", "check", "--data", "bad.csv"]):
        act = words[0] == "act"
        rows = Path("log.csv").read_text().splitlines()
        Path("bad.csv").write_text("\n".join([*rows[:-1], rows[-1].replace(",1,", ",one,")]))
        words += [] if act else ["--columns", "columns.toml"]
        plain, safe = (tidelog(*words, "--out" if act else "--quarantine", name, *more)
                       for name, more in ((f"{act}.csv", []), (f"{act}-safe.csv", ["--csv-safe"])))  # fmt: skip
        assert "note: " in plain.out, plain.err
        assert "has text that a spreadsheet computes as a formula, in the column 'word'" in plain.out
        assert "spreadsheet" not in safe.out
        first, second = (
            list(csv.DictReader(io.StringIO(Path(name).read_bytes().decode(), newline="")))
            for name in (f"{act}.csv", f"{act}-safe.csv")
        )
        assert [row["word"] for row in second] == [f"'{row['word']}" for row in first]
        assert [row["x"] for row in second] == [row["x"] for row in first]
        assert {row["action"] for row in second} <= {"'=a", "b"}
    assert "spreadsheet" not in tidelog("act", "run", "--data", "log.csv", "--out", "actions.parquet").out
