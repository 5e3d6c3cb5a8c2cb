"""What commands write: existing files are refused, replaced with --overwrite, and kept where the work fails."""

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
    with pytest.raises(tl.errors.CheckpointError, match=r"fix: rename .*\.replaced-run-0123abcd"):
        tl.load_run(tmp_path / "run")
    assert contents(tmp_path) == before


def test_other_kinds_are_never_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    before = contents(tmp_path)
    for target, message in (("folder", "is not of the kind that this command writes"), ("no/a.csv", "does not exist")):
        with pytest.raises(ConfigError, match=message):
            check_targets(tmp_path / target, overwrite=True)
    assert contents(tmp_path) == before


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
    assert tl.load_run("run").update == 5
    assert not (here / "run" / "verdicts").exists()


@pytest.mark.full
def test_an_overwrite_takes_away_rows_of_an_older_log_and_leaves_what_is_somebodys_own(here, tidelog):
    (here / "rows.csv").write_text("of an older log")
    valid = ["log", "check", *DATA, "--quarantine", "rows.csv", "--overwrite"]
    assert tidelog(*valid).code == 0
    assert not (here / "rows.csv").exists(), "no error names a row: the old file says nothing of this log"
    (here / "mine").mkdir()
    (here / "mine" / "notes.txt").write_text("mine")
    for words in (["collect", "--env", "treatment", "--episodes", 2, "--out", "mine"],
                  ["train", "bc", *DATA, "--steps", 2, "--out", "mine", *SMALL]):  # fmt: skip
        assert tidelog(*words, "--overwrite").code == 2
        assert (here / "mine" / "notes.txt").read_text() == "mine"
