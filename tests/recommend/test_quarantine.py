"""Every two errors in one table of interactions: exactly their rows are in quarantine, and the rest is a log."""

from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tidelog as tl
from tests.data.clicks import ROLES, clicks
from tests.data.spoils import typed
from tidelog.cli import main
from tidelog.data.raw import CHECKS
from tidelog.data.read import LINE, PROBLEMS, ROW
from tidelog.recommend.read import INTERACTION_CHECKS, Roles, validate_by_roles

ALL = {**ROLES, "session": "visit", "propensity": "p", "slate": "shown"}
FLAGS = ["--user=u", "--item=i", "--time=t", "--event=kind", "--reward", "click=0.2", "buy=1", "--session=visit",
         "--propensity=p", "--slate=shown"]  # fmt: skip
ERRORS = [
    *(("empty cell", column, None) for column in ("u", "i", "t", "kind", "visit", "p")),
    ("unreadable cell", "t", "noon"),
    ("unreadable cell", "p", "half"),
    ("number not finite", "t", "inf"),
    ("number not finite", "p", "nan"),
    ("times in mixed units", "t", "1000000120000"),
    ("unknown event", "kind", "view"),
    ("propensity not in (0, 1]", "p", "1.5"),
    ("item not in its slate", "shown", "x|y"),
]
ROWS = ((3, 20), (11, 30))  # from 1: the events that the first and the second error of a pair spoil
PAIRS = list(combinations_with_replacement(ERRORS, 2))


def named(pair: tuple[Any, ...]) -> str:
    return " + ".join(f"{check} in '{column}'" for check, column, _ in pair)


SAMPLE = (
    "empty cell in 'u' + empty cell in 't'-.csv",
    "unreadable cell in 't' + unknown event in 'kind'-.csv",
    "number not finite in 'p' + item not in its slate in 'shown'-.parquet",
)
CASES = [(pair, ending) for i, pair in enumerate(PAIRS) for j, ending in enumerate((".csv", ".parquet"))
         if i % 2 == j or f"{named(pair)}-{ending}" in SAMPLE]  # fmt: skip


@pytest.mark.sample(*SAMPLE)
@pytest.mark.parametrize(("pair", "ending"), CASES, ids=[f"{named(pair)}-{ending}" for pair, ending in CASES])
def test_two_errors_in_one_table_are_quarantined_and_the_rest_is_a_log(
    pair: tuple[Any, Any], ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = clicks().with_columns(shown=pl.col("i") + "|i0|i1", p=pl.lit(0.5), visit=pl.col("u"))
    texts = {name: frame[name].cast(pl.String).to_list() for name in frame.columns}
    offending = {}
    for error, rows in zip(pair, ROWS, strict=True):
        for row in rows:
            texts[error[1]][row - 1] = error[2]
            offending[row] = named((error,))
    frame = pl.DataFrame(texts)
    frame = frame if ending == ".csv" else typed(frame)
    source, bad, again = tmp_path / f"log{ending}", tmp_path / "bad.csv", tmp_path / "again.csv"
    frame.write_csv(source) if ending == ".csv" else frame.write_parquet(source)

    report = validate_by_roles(source, Roles(**ALL), bad)
    aside = pl.read_csv(bad, infer_schema=False)
    assert aside[ROW].cast(int).to_list() == sorted(offending), report.text()
    for row, problems in zip(aside[ROW].cast(int), aside[PROBLEMS], strict=True):
        assert offending[row] in problems.split("; ")
    written = pl.read_csv(frame[aside[ROW].cast(int) - 1].write_csv().encode(), infer_schema=False)
    assert aside.drop(ROW, PROBLEMS, LINE, strict=False).equals(written)

    kept = [row for row in range(frame.height) if row + 1 not in offending]
    if f"{named(pair)}-{ending}" in SAMPLE:  # the command is the same door
        good = tmp_path / "good.csv"
        words = ["log", "check", "--data", str(source), *FLAGS]
        assert main([*words, "--quarantine", str(again), "--keep", str(good)]) == 4
        assert f"written: {again}" in capsys.readouterr().out
        assert again.read_bytes() == bad.read_bytes()
        assert good.read_bytes() == frame[kept].write_csv().encode()

    rest = tmp_path / f"rest{ending}"
    frame[kept].write_csv(rest) if ending == ".csv" else frame[kept].write_parquet(rest)
    assert len(tl.read_interactions(rest, **ALL)) == len(kept) == frame.height - aside.height


def test_every_error_that_names_rows_is_in_a_pair() -> None:
    known = {name for name, one in (CHECKS | INTERACTION_CHECKS).items() if one.level == "error"} - set(CHECKS)
    elsewhere = {"no events", "one item only", "ids without features", "unusable features"}  # these name no rows
    assert {check for check, _, _ in ERRORS} | elsewhere == known


def test_one_check_tells_logs_and_interactions_apart(tmp_path):
    """What was saved is checked by itself; arguments of both kinds at once, and misspelt ones, are refused."""
    table = pl.DataFrame({"u": ["a", "a", "b"], "i": ["x", "y", "x"], "t": [1, 2, 1]})
    roles = {"user": "u", "item": "i", "time": "t"}
    log = tl.read_interactions(table, **roles)
    log.save(tmp_path / "clicks.tidelog")
    for source in (log, tmp_path / "clicks.tidelog", str(tmp_path / "clicks.tidelog")):
        assert tl.check(source).text() == log.report.text()
    assert tl.check(table, **roles).ok
    with pytest.raises(tl.ConfigError, match="columns and roles of interactions: expected one of them"):
        tl.check(table, {"action": "i"}, **roles)
    with pytest.raises(tl.ConfigError, match=r"check has no argument 'colums': did you mean 'columns'\?"):
        tl.check(table, colums={"action": "i"})
