"""A run folder from somebody else: what its links name stays as it is, and nothing in it is waited for."""

import os
import shutil
from pathlib import Path

import pytest

import tidelog as tl
from tests.cli.conftest import SMALL
from tests.sweeps.pools import InProcess
from tests.training.runs import bc, begin, stop_at
from tidelog.cli import resume, sweep

VERBS = {"resume": (), "judge": ("--quiet", "--model", "tabular"), "report": ("--out", "report.html")}
NAMES = (("metrics.jsonl", "link"), ("run.json", "FIFO"), ("new-file", "link"), ("new-file", "FIFO"), ("best", "link"))


@pytest.fixture(scope="module")
def halted(saved, tmp_path_factory):
    """A run on a saved log that stopped half way."""
    folder = tmp_path_factory.mktemp("halted") / "run"
    stop_at(begin(bc(), tl.Log.load(saved), folder), 14)
    return folder


@pytest.fixture
def foreign(halted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(halted, "run"))


def put(path, kind):
    """Put a link to a user's file or folder, or a FIFO, in the place of a path, and return what it names."""
    content = path.read_bytes() if path.is_file() else b""
    if path.is_dir():
        shutil.move(path, "mine")
    else:
        path.unlink(missing_ok=True)
        Path("mine").write_bytes(content + b"chapter 1\n" * 1000)
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to(Path("mine").absolute())


def content_of(path):
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("name", "kind"), NAMES)
def test_a_link_or_fifo_in_a_run_folder_is_refused(tidelog, foreign, name, kind, verb):
    put(foreign / name, kind)
    before = content_of(Path("mine"))
    done = tidelog(verb, foreign, *VERBS[verb])
    assert (done.code, f"{foreign / name} is a {kind}" in done.said) == (2, True)
    assert content_of(Path("mine")) == before
    assert not Path("report.html").exists()


@pytest.mark.parametrize("name", ["trials", "trials/0001/output.txt"])
def test_a_link_in_the_folder_of_a_sweep_is_refused(tidelog, here, monkeypatch, name):
    for module in (sweep, resume):
        monkeypatch.setattr(module, "pool_of", lambda *settings: InProcess())
    words = ("--data", "visits.csv", "--columns", "columns.toml", "--steps", 4, *SMALL)
    assert tidelog("sweep", "bc", *words, "--grid", "learning_rate=0.01,0.02", "--out", "both").code == 0
    put(Path("both") / name, "link")
    before = content_of(Path("mine"))
    done = tidelog("resume", "both")
    assert (done.code, f"both/{name} is a link" in done.said) == (2, True)
    assert content_of(Path("mine")) == before


def test_a_ledger_that_is_a_fifo_is_refused_and_a_link_that_the_user_names_is_followed(tidelog, run, tmp_path):
    run = shutil.copytree(run, tmp_path / "run")
    os.mkfifo(tmp_path / "fifo")
    judge = ["judge", run, "--model", "tabular", "--replicates", 1000, "--quiet", "--ledger"]
    done = tidelog(*judge, tmp_path / "fifo")
    assert (done.code, "is a FIFO" in done.said) == (2, True)
    (tmp_path / "link").symlink_to(tmp_path / "mine.jsonl")
    assert tidelog(*judge, tmp_path / "link").code == 0
    assert (tmp_path / "mine.jsonl").stat().st_size > 0
