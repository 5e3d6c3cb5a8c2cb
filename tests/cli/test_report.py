"""`tidelog report`: the file that it writes, what it says, and what it refuses."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from tests.cli.conftest import SMALL, Done
from tidelog.cli.policies import columns_of_run, log_for_runs
from tidelog.errors import ConfigError
from tidelog.training.record import Record

QUICK = ["--replicates", 1000, "--model", "tabular"]


def test_a_report_is_written_and_named(here, run, tidelog):
    done = tidelog("report", run)
    assert done.code == 0
    assert done.out.startswith("report: report.html (")
    text = (here / "report.html").read_text(encoding="utf-8")
    assert "Not judged yet" in text
    assert "severity" in text
    assert tidelog("report", run, "--out", "report.html").code == 0


def test_a_log_that_moved_is_given(here, run, tidelog):
    words = ["--data", "visits.csv", "--columns", "columns.toml"]
    assert tidelog("report", run, *words, "--out", "a.html").code == 0
    (here / "other.csv").write_text("\n".join((here / "visits.csv").read_text().split("\n")[:-9]) + "\n")
    done = tidelog("report", run, "--data", "other.csv", "--columns", "columns.toml", "--out", "b.html")
    assert (done.code, (here / "b.html").exists()) == (2, False)
    assert "no run of the report learnt from this log" in done.said


def test_a_table_is_read_with_the_columns_of_the_run_unless_others_are_named(here, run, tidelog):
    pl.read_csv("visits.csv").rename({"severity": "badness"}).write_csv("renamed.csv")
    run = shutil.copytree(run, here / "own")  # a verdict stays with its run
    judge, plan = ["judge", run, *QUICK], ["plan", run, "--simulations", 20, *QUICK[2:]]
    for words in (["evaluate", run], ["report", run, "--out", "page.html"], judge, plan):
        own, named = (tidelog(*words, "--data", "visits.csv", *more) for more in ([], ["--columns", "columns.toml"]))
        said = "--data is read with the columns of the run's log; --columns FILE names others\n"
        assert own == Done(named.code, said + named.out, named.err)
        assert "no column 'severity'" in tidelog(*words, "--data", "renamed.csv").err
    assert said not in tidelog("evaluate", run, "--data", "visits.csv", "--quiet").out
    spoken = tidelog("evaluate", run, "--data", "visits.csv", "--json")
    assert said in spoken.err
    json.loads(spoken.out)


def test_propensities_that_a_mapping_declares_hold_for_the_rows_of_the_run_alone(here, tidelog, capsys):
    table = pl.read_csv("visits.csv").drop("propensity")
    table.write_csv("visits.csv")
    table.filter(pl.col("patient") > pl.col("patient").median()).write_csv("others.csv")
    text = Path("columns.toml").read_text().replace('propensity = "propensity"', 'propensity = "shares"')
    Path("columns.toml").write_text(text)
    words = ["--data", "visits.csv", "--columns", "columns.toml", "--steps", 20, "--out", "run", "--held-out", 0.5]
    assert tidelog("train", "bc", *words, "--no-judge", *SMALL).code == 0
    record = Record.read(Path("run"))
    assert log_for_runs(("visits.csv",), None, [record]).propensity is not None
    assert log_for_runs(("others.csv",), None, [record]).propensity is None
    assert "the propensities that its mapping declares are not taken over" in capsys.readouterr().out


def test_columns_are_those_of_all_runs_and_their_form_of_text_that_of_the_ending(here):
    origins = [
        {"source": "a.csv", "columns": {"observation": ["x"], "action": name, "separator": ";"}} for name in "bc"
    ]
    assert [columns_of_run(origins[0], name).separator for name in ("new.csv", "new.parquet")] == [";", None]
    records = [SimpleNamespace(data=SimpleNamespace(origin=origin)) for origin in origins]
    with pytest.raises(ConfigError, match="without a mapping"):
        log_for_runs(("visits.csv",), None, records)
