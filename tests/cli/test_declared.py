"""`--propensity` and `--randomised`: on which commands, what they refuse, and the shortest path of an A/B test."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidelog as tl

MAPPING = 'observation = ["age", "village"]\naction = "arm"\nreward = "reward"\nterminated = true\n'
QUICK = ["--replicates", "1000", "--model", "tabular"]
SMALL = ["--hidden", "8", "8", "--embedding", "2", "--batch-size", "32", "--steps", "400"]


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A folder with an A/B test, `test.csv`, without a column of propensities, and its mapping."""
    generator = np.random.default_rng(4)
    arm = (generator.random(3_000) < 0.8).astype(int)  # a clone does always what most got
    table = pl.DataFrame(
        {
            "age": generator.normal(40.0, 10.0, 3_000),
            "village": [f"v{one}" for one in generator.integers(0, 4, 3_000)],
            "arm": np.array(["A", "B"])[arm],
            "reward": (generator.random(3_000) < 0.2 + 0.3 * arm).astype(int),
        }
    )
    table.write_csv(tmp_path / "test.csv")
    (tmp_path / "c.toml").write_text(MAPPING)
    return tmp_path


def log_flags(trial: Path) -> list[str]:
    return ["--data", str(trial / "test.csv"), "--columns", str(trial / "c.toml")]


def test_inspect_proposes_shares_as_a_comment_and_never_fills_them_in(trial: Path, tidelog: Any) -> None:
    done = tidelog("log", "inspect", "--data", str(trial / "test.csv"), "--write", str(trial / "proposed.toml"))
    assert done.code == 0
    lines = (trial / "proposed.toml").read_text().splitlines()
    (place,) = [at for at, line in enumerate(lines) if "propensity" in line]
    assert lines[place].startswith('# propensity = "shares"   # only if arm was drawn at random: no observation')
    assert "would have shown a difference of" in lines[place + 1]
    assert tl.Columns.from_file(trial / "proposed.toml").propensity is None


def test_inspect_proposes_no_shares_where_a_column_predicts_the_action(trial: Path, tidelog: Any) -> None:
    table = pl.read_csv(trial / "test.csv")
    old = pl.col("age") + 5.0 * pl.Series(np.random.default_rng(1).normal(size=3_000)) > 40.0
    table = table.with_columns(arm=pl.when(old).then(pl.lit("A")).otherwise(pl.lit("B")))
    table.write_csv(trial / "ruled.csv")
    done = tidelog("log", "inspect", "--data", str(trial / "ruled.csv"))
    assert "propensity" not in done.out


def test_validate_reads_a_declaration_from_its_flags(trial: Path, tidelog: Any) -> None:
    for flags in (["--randomised"], ["--propensity", "{ A = 0.2, B = 0.8 }"],
                  ["--propensity", "{ shares_by = ['village'] }"], ["--propensity", "shares"]):  # fmt: skip
        assert tidelog("log", "check", *log_flags(trial), *flags).code == 0
    wrong = tidelog("log", "check", *log_flags(trial), "--propensity", "0.3")
    assert wrong.code == 2
    assert "0.3 for each of 2 actions, 0.6 in all" in wrong.said
    column = tidelog("log", "check", *log_flags(trial), "--propensity", "p")
    assert column.code == 2
    assert "no column 'p' for propensity" in column.said


def test_flags_that_contradict_each_other_or_have_no_mapping_are_refused(trial: Path, tidelog: Any) -> None:
    both = tidelog("log", "check", *log_flags(trial), "--propensity", "0.5", "--randomised")
    assert both.code == 2
    assert "both set" in both.said
    without = tidelog("train", "bc", "--data", str(trial / "test.csv"), "--randomised")
    assert without.code == 2
    assert "for tables with a mapping" in without.said


def test_inspect_and_convert_say_and_keep_a_declaration(trial: Path, tidelog: Any) -> None:
    shown = tidelog("log", "inspect", *log_flags(trial), "--randomised")
    assert "propensities declared as drawn with each action's own share" in shown.out
    assert shown.said.rstrip().endswith("--randomised"), "the next command repeats the declaration"
    target = trial / "log.tidelog"
    words = ["log", "convert", *log_flags(trial), "--propensity", "{ A = 0.2, B = 0.8 }", "--out", str(target)]
    assert tidelog(*words).code == 0
    declared = tl.Log.load(target).declared
    assert declared is not None
    assert declared.probabilities == (0.2, 0.8)


def test_the_shortest_path_of_an_ab_test(trial: Path, tidelog: Any) -> None:
    """Without a declaration the gate stays closed and says what opens it; with one it opens."""
    run = str(trial / "run")
    learnt = tidelog("train", "bc", *log_flags(trial), *SMALL, "--held-out", "0.5", "--out", run, "--quiet")
    assert learnt.code == 0
    closed = tidelog("judge", run, "--mode", "--gate", *QUICK)
    assert closed.code == 3
    assert "only if nothing unrecorded decided who got what" in closed.out.split("\n")[0]
    assert "the verdict is 'better if randomised'" in closed.said
    assert "--randomised" in closed.said
    wrong = tidelog("judge", run, "--propensity", "p")
    assert wrong.code == 2
    assert "is named in its mapping" in wrong.said
    twice = tidelog("judge", run, "--randomised", "--propensities", "estimated")
    assert twice.code == 2
    out = trial / "verdict.json"
    opened = tidelog("judge", run, "--mode", "--randomised", "--gate", "--out", str(out), *QUICK)
    assert opened.code == 0
    verdict = json.loads(out.read_text())
    assert verdict["decision"] == "better"
    assert verdict["context"]["propensities"] == "declared"
    assert verdict["context"]["looks"]["number"] == 1  # the question of before, under the condition that it named
    page = trial / "page.html"
    assert tidelog("report", run, "--out", str(page)).code == 0
    text = page.read_text()
    assert "better if randomised" in text
    assert "declared as drawn with each action" in text


@pytest.mark.full
def test_a_run_is_trained_on_a_declared_log_and_read_again(trial: Path, tidelog: Any) -> None:
    run = str(trial / "run")
    flags = ["--propensity", "{ shares_by = ['village'] }", "--held-out", "0.5", "--out", run, "--quiet"]
    assert tidelog("train", "bc", *log_flags(trial), *SMALL, *flags).code == 0
    judged = tidelog("judge", run, "--json", *QUICK)
    verdicts = json.loads(judged.out)["verdicts"]
    assert {one["context"]["propensities"] for one in verdicts.values()} == {"declared"}
    again = tidelog("train", "bc", "--config", f"{run}/run.toml", "--out", str(trial / "again"), "--quiet")
    assert again.code == 0
    one, two = (json.loads((Path(each) / "run.json").read_text()) for each in (run, trial / "again"))
    assert one["data"]["fingerprint"] == two["data"]["fingerprint"]
