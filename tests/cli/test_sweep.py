"""`tidelog sweep`: grids and draws become trials, a table and a page; what is wrong is refused before anything runs."""

import json
from pathlib import Path

import pytest

import tidelog as tl
from tests.cli.conftest import SMALL
from tests.sweeps.pools import InProcess
from tidelog.cli import resume, sweep
from tidelog.training.record import locked

DATA = ["--data", "visits.csv", "--columns", "columns.toml"]
SHORT = ["--steps", 4, "--eval-every", 2, *SMALL]
LOSS = "held_out/imitation_loss"


@pytest.fixture
def in_process(monkeypatch):
    """Commands train in this process."""
    for module in (sweep, resume):
        monkeypatch.setattr(module, "pool_of", lambda *settings: InProcess())


@pytest.mark.full
def test_a_grid_and_draws_become_a_table_and_a_page(here, tidelog, in_process):
    words = ["--grid", "learning_rate=1e-2,1e30", "--draw", "dropout=0..0.5", "--trials", 2, "--data-share", "0.5,1"]
    done = tidelog("sweep", "bc", *DATA, *SHORT, *words, "--best-metric", LOSS, "--out", "a", "--json")
    assert done.code == 4  # half of the trials diverge
    shown = json.loads(done.out)
    assert [(row["settings"]["learning_rate"], row["settings"]["data_share"]) for row in shown["trials"]] == [
        (rate, share) for rate in (1e-2, 1e30) for _ in range(2) for share in (0.5, 1.0)
    ]
    assert len({row["settings"]["dropout"] for row in shown["trials"]}) == 2
    assert [row["state"] for row in shown["trials"]] == ["complete"] * 4 + ["diverged"] * 4
    assert "note: trial 4 diverged at update 0: a loss of BC" in done.said
    assert "next: tidelog judge a --sample" in done.err
    assert (here / "a" / "report.html").is_file()
    assert tidelog("judge", "a", "--sample", "--quiet").out.count("UNSUPPORTED") == 4
    assert tidelog("report", "a", "--out", "page.html").code == 0
    again = tidelog("resume", "a", "--quiet")
    assert (again.code, again.out) == (4, "sweep folder: a\n")
    assert "tidelog: trial 4 diverged: a loss of BC" in again.err


@pytest.mark.full
def test_several_algorithms_share_the_flags_of_the_run(here, tidelog, in_process):
    (here / "sweep.toml").write_text('data = "visits.csv"\ncolumns = "columns.toml"\ngrid = ["batch_size=16,32"]\n')
    done = tidelog("sweep", "bc,iql", "--config", "sweep.toml", "--grid", "hidden=8x8", *SHORT[:4], "--out", "a")
    assert done.code == 0
    assert [row["algorithm"] for row in tl.Sweep("a").table] == ["bc", "bc", "iql", "iql"]
    assert "algorithm" in tl.Sweep("a").head
    assert {tuple(trial.config["hidden"]) for trial in tl.Sweep("a").plan.trials} == {(8, 8)}


def test_values_are_parsed_as_the_types_of_their_settings(here, tidelog, monkeypatch):
    monkeypatch.setattr(sweep, "drive_and_show", lambda *arguments: 0)
    words = ["--grid", "gradient_clip=none,0.5", "layer_norm=true,FALSE", "schedule=cosine,linear"]
    done = tidelog("sweep", "bc", *DATA, *SHORT, *words, "--draw", "dropout=0.25,0.5", "--trials", 1, "--out", "a")
    assert done.code == 0
    configs = [trial.config for trial in tl.Sweep("a").plan.trials]
    assert [(one["gradient_clip"], one["layer_norm"], one["schedule"]) for one in configs] == [
        (clip, norm, schedule) for clip in (None, 0.5) for norm in (True, False) for schedule in ("cosine", "linear")
    ]
    assert {one["dropout"] for one in configs} <= {0.25, 0.5}


def test_flags_of_runs_and_of_sweeps_are_told_apart(here, run, tidelog, in_process):
    assert "--workers, --on and --insecure are for a sweep" in tidelog("resume", run, "--workers", 2).said
    assert tidelog("sweep", "bc", *DATA, *SHORT, "--out", "a", "--quiet").code == 0
    assert "--env, --checkpoint and --sink are for a run" in tidelog("resume", "a", "--checkpoint", 0).said
    with locked(Path("a")):
        done = tidelog("resume", "a")
    assert (done.code, "is being trained by process" in done.err) == (4, True)
    assert "a sweep has a page of its own" in tidelog("report", "a", run).said
