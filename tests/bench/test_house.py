"""The figures of the house: each is counted, and the aims are of figures that exist."""

import re
import sys

import pytest

from benchmarks.__main__ import main, studies
from benchmarks.house import AIMS, ROOT, figures
from benchmarks.keep import source
from benchmarks.walks import study

WALKS = {"read_log": 10, "fit": 26, "judge": 31, "POST /act": 6}  # files: a change may lower them


def test_every_figure_is_counted_and_every_aim_has_its_figure():
    counted = figures()
    assert set(AIMS) <= set(counted)
    assert all(value > 0 for name, value in counted.items() if name != "class names twice")
    assert counted["class names twice"] == 0


@pytest.mark.full
def test_data_pass_no_more_files_than_before(tmp_path):
    walks = study(tmp_path)
    longer = {name: sorted(files) for name, (files, _) in walks.items() if len(files) > WALKS[name]}
    assert not longer


def test_one_runner_lists_every_study_and_runs_the_one_that_is_named(capsys, monkeypatch):
    claims = studies()
    assert {"speed", "calibration", "kills", "house"} <= set(claims)
    assert not {"keep", "peers_torch", "peers_learning_torch", "peer_judges"} & set(claims)
    assert all(claims.values())
    assert main(["hose"]) == 2
    assert "fix: `python -m benchmarks house`" in capsys.readouterr().err
    ran = []
    monkeypatch.setattr("runpy.run_module", lambda name, **_: ran.append((name, sys.argv[1:])))
    monkeypatch.setattr("sys.argv", ["benchmarks"])
    assert main(["kills", "--seconds", "3"]) == 0
    assert ran == [("benchmarks.kills", ["--seconds", "3"])]


def test_every_study_that_a_page_names_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"python -m\s+benchmarks (\w+)", page.read_text())}
    assert named - set(studies()) == {"NAME"}


def test_a_result_says_its_command_or_the_program_of_the_history():
    here, gone = ({"command": f"python -m benchmarks {name}"} for name in ("speed", "a_look_of_once"))
    assert source(here) == "Command: `python -m benchmarks speed`."
    assert source(gone) == "Measured by `benchmarks/a_look_of_once.py` in the history."
    assert source(here, gone) == f"{source(here)} {source(gone)}"
