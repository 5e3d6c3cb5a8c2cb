"""`tidelog log`: every error is exit code 2 with its place and its mend, and nothing is half written."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.data.test_checks import BROKEN, Broken, put, write
from tests.data.test_warnings import CASES, CLEAN
from tests.data.visits import COLUMNS, visits
from tidelog.cli import main
from tidelog.data.raw import CHECKS
from tidelog.data.read import read_log


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command is called in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def mapped(**changes: Any) -> str:
    """A mapping file."""
    path = Path("columns.json")
    path.write_text(json.dumps({**COLUMNS, **changes}))
    return str(path)


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("case", [BROKEN[0], BROKEN[6], BROKEN[-1]], ids=lambda case: f"{case.check}-{case.column}")
def test_a_broken_file_ends_with_code_2_and_says_where_and_how_to_mend(
    case: Broken, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error without rows, with two rows, and about two columns; `tests/data/test_checks.py` has every error."""
    path = write(case.change(visits()), Path("broken.csv"))
    columns = mapped(**case.mapping)
    before = sorted(tmp_path.iterdir())
    assert main(["log", "check", "--data", str(path), "--columns", columns]) == 2
    said = flat(capsys.readouterr().out)
    assert f"error: {case.check} in '{case.column}'" in said
    assert ("2 rows: 2, 7 (lines 3, 8)" in said) == (case.rows == (2, 7))
    for part in ("found: ", "expected: ", "fix: "):
        assert part in said
    for words in (["log", "inspect", "--html", "page.html"], ["train", "bc", "--out", "run"]):
        assert main([*words, "--data", str(path), "--columns", columns]) == 2
        assert case.check in flat(capsys.readouterr().err)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("check", "change"), [CASES[3], CASES[-1]], ids=["no end flag", "bounds inferred"])
def test_a_warning_and_a_note_are_said_and_end_with_code_0(
    check: str, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("log.npz", **{name: value for name, value in {**CLEAN, **change}.items() if value is not None})
    assert main(["log", "check", "--data", "log.npz"]) == 0
    assert f"{CHECKS[check].level}: {check}" in capsys.readouterr().out


def test_validate_writes_a_page_and_a_quarantine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(write(put("p", (4, 7), (9, 0))(visits()), Path("a.csv")))
    bad, page = Path("bad.csv"), Path("page.html")
    words = ["log", "check", "--data", source, "--columns", mapped(), "--quarantine", str(bad), "--html", str(page)]
    assert main(words) == 4
    assert pl.read_csv(bad)["quarantine_row"].to_list() == [4, 9]
    assert "Refused" in page.read_text()
    capsys.readouterr()
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["log", "check", "--data", source, "--quarantine", "more.csv"]) == 2
    assert "--columns" in capsys.readouterr().err
    assert not Path("more.csv").exists()


def test_validate_keeps_the_other_rows_beside_the_quarantine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(write(put("p", (4, 7), (9, 0))(visits()), Path("a.csv")))
    bad, good = Path("bad.csv"), Path("good.csv")
    words = ["log", "check", "--data", source, "--columns", mapped()]
    assert main([*words, "--keep", str(good)]) == 2
    assert "fix: add --quarantine FILE" in flat(capsys.readouterr().err)
    assert main([*words, "--quarantine", str(bad), "--keep", str(good)]) == 4
    assert f"written: {bad} written: {good}" in flat(capsys.readouterr().out)
    broken = set(visits()["patient"].gather([3, 8]).to_list())
    assert pl.read_csv(good)["patient"].to_list() == [one for one in visits()["patient"] if one not in broken]
    assert main(["log", "check", "--data", str(good), "--columns", mapped()]) == 0


def test_validate_of_a_clean_file_writes_no_quarantine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    visits().write_csv("a.csv")
    bad = Path("bad.csv")
    words = ["log", "check", "--data", "a.csv", "--columns", mapped(), "--quarantine", str(bad)]
    assert main(words) == 0
    assert "no error names a row" in capsys.readouterr().out
    assert not bad.exists()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]


def test_inspect_proposes_a_mapping_that_validates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, proposal, page = (str(tmp_path / name) for name in ("a.csv", "columns.toml", "page.html"))
    visits().write_csv(source)
    assert main(["log", "inspect", "--data", source, "--write", proposal, "--html", page]) == 0
    assert f"written: {proposal}" in capsys.readouterr().out
    assert main(["log", "check", "--data", source, "--columns", proposal]) == 0
    assert read_log(source, proposal).steps == 39
    assert "Proposed mapping" in Path(page).read_text()
    capsys.readouterr()
    kept = Path(proposal).read_text()
    assert main(["log", "inspect", "--data", source, "--write", proposal]) == 2
    assert "exists" in capsys.readouterr().err
    assert Path(proposal).read_text() == kept
    assert main(["log", "inspect", "--data", source, "--write", "c.json"]) == 2
    assert main(["log", "inspect", "--data", source, "--columns", proposal, "--write", "d.toml"]) == 2
    assert main(["log", "inspect", "--data", source, "--html", str(tmp_path / "nowhere" / "p.html")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "columns.toml", "page.html"]


def test_convert_refuses_a_broken_file_and_an_unknown_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(write(put("p", (4, 7))(visits()), Path("a.csv")))
    before = [*sorted(tmp_path.iterdir()), tmp_path / "columns.json"]
    for target, said in (("b.parquet", "propensity out of range"), ("b.xlsx", "target")):
        assert main(["log", "convert", "--data", source, "--out", str(tmp_path / target), "--columns", mapped()]) == 2
        assert said in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == sorted(before)


def survey(path: Path) -> str:
    rng = np.random.default_rng(2)
    table = {
        "age": rng.normal(40, 9, 120).round(1),
        "folder": rng.choice(["a", "b"], 120),
        "visit": rng.integers(0, 2, 120),
    }
    pl.DataFrame(table | {"house": np.arange(120) // 3}).write_csv(path / "survey.csv")
    return str(path / "survey.csv")


def test_what_is_known_is_said_by_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, columns = survey(tmp_path), "c.toml"
    words = ["log", "inspect", "--data", source]
    assert main(words) == 0
    assert "proposed again: tidelog log inspect --data" in flat(capsys.readouterr().out)
    said = ["--action", "folder", "--reward", "visit", "--cluster", "house", "--propensity", "{ a = 0.5, b = 0.5 }"]
    assert main([*words, *said]) == 0
    printed = capsys.readouterr().out
    for line in ('action = "folder"', 'reward = "visit"', 'cluster = "house"', 'propensity = { "a" = 0.5, "b" = 0.5 }'):
        assert f"\n{line}\n" in printed
    again = next(line for line in printed.split("\n") if "--write columns.toml" in line)
    assert main([*shlex.split(again)[1:-1], columns]) == 0
    log = read_log(source, columns)
    assert (log.spec.action.names, log.cluster is None) == (("a", "b"), False)  # type: ignore[union-attr]
    assert log.declared is not None
    capsys.readouterr()
    many = ["--action", "folder", "house", "--terminated", "true", "--randomised", "--json"]
    assert main([*words, *many]) == 0
    toml = json.loads(capsys.readouterr().out)["toml"]
    assert toml.startswith('action = ["folder", "house"]\nterminated = true\npropensity = "shares"')
