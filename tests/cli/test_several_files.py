"""Commands read several files as one log: several values, folders, globs, and the same flag again."""

import json
import shutil

import polars as pl
import pytest

import tidelog as tl
from tests.cli.conftest import SMALL, contents
from tests.data.clicks import clicks
from tests.runtime.cases import listing
from tidelog.data.read import read_log

COLUMNS = ["--columns", "columns.toml"]


@pytest.fixture
def logs(here, table):
    """A folder `logs` with the table in two files, cut within an episode; the table itself is gone."""
    cut = table.height // 2
    (here / "logs").mkdir()
    table[:cut].write_csv("logs/part-0.csv")
    table[cut:].write_csv("logs/part-1.csv")
    whole = read_log("visits.csv", "columns.toml").fingerprint()
    (here / "visits.csv").unlink()
    return whole


WAYS = {
    "values": ["--data", "logs/part-1.csv", "logs/part-0.csv"],
    "flags": ["--data", "logs/part-0.csv", "--data=logs/part-1.csv"],
    "folder": ["--data", "logs"],
    "glob": ["--data", "lo*/part-*.csv"],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sample(every=4)
def test_a_run_over_several_files_is_resumed_over_the_same_files(way, here, logs, tidelog):
    done = tidelog("train", "bc", *WAYS[way], *COLUMNS, "--steps", 4, "--out", "run", "--held-out", 0.3, *SMALL)
    assert done.code == 0, done.err
    data = json.loads((here / "run" / "run.json").read_text())["data"]
    assert data["fingerprint"] == logs
    assert data["origin"]["source"] == [str(here / "logs" / f"part-{i}.csv") for i in range(2)]
    shutil.copy("logs/part-1.csv", "logs/part-2.csv")  # a later file is not part of this run
    done = tidelog("resume", "run", "--checkpoint", 0)
    assert done.code == 0, done.err
    assert tl.resume("run", checkpoint=0).record.data.fingerprint == logs
    (here / "logs" / "part-1.csv").unlink()
    done = tidelog("resume", "run", "--checkpoint", 0)
    assert done.code == 2
    assert str(here / "logs" / "part-1.csv") in done.said
    assert "does not exist" in done.said


def test_judge_evaluate_act_and_report_read_several_files(here, logs, run, tidelog):
    several = ["--data", "logs/part-0.csv", "--data", "logs/part-1.csv", *COLUMNS]
    shutil.copytree(run, "run")
    assert tidelog("judge", "run", *several, "--mode", "--ledger", "off", "--out", "verdict.json").code == 0
    assert json.loads((here / "verdict.json").read_text())["context"]["source"] == "logs/part-0.csv and 1 more"
    assert "logs/part-0.csv and 1 more" in tidelog("evaluate", "run", *several).said
    done = tidelog("report", "run", "--data", "logs", *COLUMNS, "--out", "report.html")
    assert done.code == 0, done.err
    done = tidelog("act", "run", "--data", "logs/*.csv", "--out", "acted.csv")
    assert done.code == 0, done.err
    whole = tidelog("act", "run", "--data", "logs/part-0.csv", "--data", "logs/part-1.csv", "--out", "again.csv")
    assert whole.code == 0
    assert (here / "acted.csv").read_bytes() == (here / "again.csv").read_bytes()


def test_act_names_the_file_and_the_row_in_it(here, logs, run, table, tidelog):
    half = table.height // 2
    lines = (here / "logs" / "part-1.csv").read_text().splitlines()
    place = table.columns.index("kidneys")
    cells = lines[3].split(",")
    cells[place] = "gone"
    lines[3] = ",".join(cells)
    (here / "logs" / "part-1.csv").write_text("\n".join(lines) + "\n")
    before = contents(here)
    done = tidelog("act", run, "--data", "logs", "--out", "acted.csv")
    assert done.code == 2
    assert "logs/part-1.csv: column 'kidneys' is 'gone' in 1 row(s) (3)" in done.said
    assert contents(here) == before
    done = tidelog("act", run, "--data", "logs", "--out", "acted.csv", "--skip-unknown", "skipped.csv")
    assert done.code == 0, done.err
    assert (here / "skipped.csv").read_text().splitlines()[1].startswith("logs/part-1.csv,3,kidneys: gone")
    assert len((here / "acted.csv").read_text().splitlines()) == table.height
    assert half > 3


def test_data_commands_take_several_files(here, logs, tidelog):
    both = ["logs/part-0.csv", "logs/part-1.csv"]
    assert tidelog("log", "check", "--data", *both, *COLUMNS).code == 0
    done = tidelog("log", "inspect", "--data", *both, *COLUMNS, "--json")
    assert json.loads(done.out)["fingerprint"] == logs
    assert "--data logs/part-0.csv logs/part-1.csv" in tidelog("log", "inspect", "--data", *both).said
    done = tidelog("log", "inspect", "--data", "logs", "--write", "proposal.toml", "--html", "page.html")
    assert done.code == 0, done.err
    assert tidelog("log", "convert", "--data", "logs", "--out", "all.tidelog", *COLUMNS).code == 0
    assert tl.Log.load("all.tidelog").fingerprint() == logs


def test_lists_of_several_files_are_those_of_one(tmp_path, monkeypatch, tidelog):
    """Histories go on in another file, and the lists are made of the whole ones."""
    monkeypatch.chdir(tmp_path)
    table = clicks(users=6)
    (tmp_path / "days").mkdir()
    for number in range(2):
        table[number::2].write_csv(f"days/{number}.csv")
    table.write_csv("whole.csv")
    listing("lists, mean").save("policy")
    columns = ["--user", "u", "--item", "i", "--time", "t", "--event", "kind", "--k", 3]
    for source, target in (("days/*.csv", "lists.parquet"), ("whole.csv", "expected.parquet")):
        done = tidelog("act", "policy", "--data", source, *columns, "--out", target)
        assert done.code == 0, done.err
    lists, expected = pl.read_parquet("lists.parquet"), pl.read_parquet("expected.parquet")
    assert lists.sort("u", "rank").equals(expected.sort("u", "rank"))
    assert len(lists) == 6 * 3
