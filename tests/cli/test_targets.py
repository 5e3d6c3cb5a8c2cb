"""What commands write: existing files are refused, replaced with --overwrite, and kept where the work fails."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import tidelog as tl
from tests.cli.conftest import SMALL, contents
from tidelog import ConfigError
from tidelog.cli.flags import check_targets, is_run

DATA = ["--data", "visits.csv", "--columns", "columns.toml"]


def test_an_existing_file_is_refused_or_stays(tmp_path):
    target = tmp_path / "a.csv"
    target.write_text("old")
    message = r"exists, nothing was written\. fix: choose another name, or add --overwrite"
    with pytest.raises(ConfigError, match=message):
        check_targets(target, overwrite=False)
    check_targets(target, None, tmp_path / "b.csv", overwrite=True)
    assert contents(tmp_path).keys() == {target.relative_to(tmp_path)}
    assert target.read_text() == "old"


def test_what_a_killed_command_moved_aside_is_not_lost(tmp_path):
    """Where a system cannot exchange folders, a stop between two renames leaves the older one beside its place."""
    aside = tmp_path / ".replaced-run-0123abcd"
    aside.mkdir()
    (aside / "run.json").write_text("old")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"before a command that was killed\. fix: rename it to"):
        check_targets(tmp_path / "run", overwrite=True, replaceable=is_run)
    with pytest.raises(tl.CheckpointError, match=r"fix: rename .*\.replaced-run-0123abcd"):
        tl.load(tmp_path / "run")
    assert contents(tmp_path) == before


def test_other_kinds_are_never_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    before = contents(tmp_path)
    for target, message in (("folder", "is not of the kind that this command writes"), ("no/a.csv", "does not exist")):
        with pytest.raises(ConfigError, match=message):
            check_targets(tmp_path / target, overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.full
def test_commands_replace_what_they_wrote(here, run, tidelog):
    act = ["act", run, "--data", "visits.csv", "--out", "actions.csv"]
    pages = ["data", "inspect", "--data", "visits.csv", "--write", "proposal.toml", "--html", "page.html"]
    valid = ["data", "validate", *DATA, "--quarantine", "rows.csv", "--html", "report.html"]
    other = ["data", "convert", *DATA, "--out", "log.npz"]
    folder = ["data", "convert", *DATA, "--out", "log.tidelog"]
    played = ["collect", "--env", "treatment", "--episodes", 2, "--out", "played"]
    for words in (act, pages, valid, other, folder, played):
        assert tidelog(*words).code == 0
        before = contents(here)
        again = tidelog(*words)
        assert again.code == 2
        assert "exists" in again.err
        assert contents(here) == before
        assert tidelog(*words, "--overwrite").code == 0
    assert pl.read_csv("actions.csv").height == pl.read_csv("visits.csv").height
    assert not (here / "rows.csv").exists()
    (here / "rows.csv").write_text("of an older log")
    assert tidelog(*valid, "--overwrite").code == 0
    assert not (here / "rows.csv").exists(), "no error names a row: the old file says nothing of this log"
    (here / "mine").mkdir()
    (here / "mine" / "notes.txt").write_text("mine")
    for words in (["collect", "--env", "treatment", "--episodes", 2, "--out", "mine"],
                  ["train", "bc", *DATA, "--steps", 2, "--out", "mine", *SMALL]):  # fmt: skip
        assert tidelog(*words, "--overwrite").code == 2
        assert (here / "mine" / "notes.txt").read_text() == "mine"


def test_a_run_is_replaced_by_another_one_only_if_that_begins(here, tidelog):
    words = ["train", "bc", *DATA, "--out", "run", *SMALL]
    assert tidelog(*words, "--steps", 3).code == 0
    before = contents(here)
    refused = tidelog(*words, "--steps", 5)
    assert refused.code == 2
    assert "exists and is not empty (a run); nothing was written" in refused.err
    assert tidelog(*words, "--steps", 5, "--patience", 0, "--overwrite").code == 2
    assert contents(here) == before
    (here / "run" / "verdicts").mkdir()  # of the older policy
    assert tidelog(*words, "--steps", 5, "--overwrite").code == 0
    assert tl.load("run").update == 5
    assert not (here / "run" / "verdicts").exists()


def test_quiet_commands_print_their_result_only(here, tidelog):
    done = tidelog("train", "bc", *DATA, "--steps", 3, "--out", "run", "--quiet", *SMALL)
    assert (done.code, done.out, done.err) == (0, "run folder: run\n", "")
    done = tidelog("resume", "run", "--quiet")
    assert (done.code, done.err) == (0, "")
    done = tidelog("judge", "run", "--sample", "--quiet", "--ledger", "off", "--replicates", 1000)
    assert done.code == 0
    assert done.out in ("policy: UNSUPPORTED\n", "policy: NO DIFFERENCE SHOWN\n")


def test_json_is_the_whole_standard_output(here, run, tidelog):
    shutil.copytree(run, "run")
    trained = tidelog("train", "bc", *DATA, "--steps", 3, "--out", "new", "--json", *SMALL)
    facts = json.loads(trained.out)
    assert (facts["run"], facts["done"], facts["finished"], len(facts["metrics"])) == ("new", 3, True, 1)
    assert "run folder: new" in trained.err
    assert json.loads(tidelog("resume", "new", "--json").out) == facts
    assert tidelog("train", "bc", *DATA, "--steps", 3, "--out", "new", "--json", *SMALL)[:2] == (2, "")
    written = json.loads(tidelog("report", "new", "--json").out)
    assert written["bytes"] == Path(written["report"]).stat().st_size
    assert tidelog("export", "new", "--out", "policy", "--no-onnx").code == 0
    checked = json.loads(tidelog("verify", "policy", "--json").out)
    assert checked["files"] > 0
    assert checked["signature"] == {"key": None, "valid": None}
    ledger = ("--ledger", "off", "--replicates", 1000)
    judged = tidelog("judge", "run", "--sample", "--json", *ledger)
    found = json.loads(judged.out)
    assert {"decision", "difference", "paragraph"} <= set(found)
    assert judged.err.startswith(found["advice"])
    both = json.loads(tidelog("judge", "run", "--all-members", "--sample", "--json", *ledger).out)
    assert set(both["verdicts"]) == {"member-0", "member-1"}
    played = tidelog("evaluate", "run", "--env", "treatment", "--episodes", 3, "--json")
    assert [len(one) for one in json.loads(played.out)["returns"]] == [3, 3]
    compared = json.loads(tidelog("evaluate", "run", *DATA, "--json").out)
    assert len(compared["members"]) == 2
    assert 0.0 <= compared["members"][0]["share of equal actions"] <= 1.0
    described = json.loads(tidelog("data", "inspect", "--data", "visits.csv", "--json").out)
    assert described["rows"] == pl.read_csv("visits.csv").height
