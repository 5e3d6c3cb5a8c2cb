"""The commands with `--sink`: a run that is trained, completed and judged is shown in a tracker."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import SMALL, call
from tests.sinks.readers import PACKAGES, expected, shown
from tidelog import load_run
from tidelog.sinks import open_sink

pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow's own use of SQLAlchemy 2.1
]


def train(saved, *words):
    return call("train", "bc", "--data", saved, "--steps", 20, "--eval-every", 10, "--preset", "none", *SMALL, *words)


@pytest.mark.sample("tensorboard")
def test_a_run_and_its_verdict_are_shown(sink, word, saved, tmp_path, capsys):
    for package in PACKAGES[sink]:
        pytest.importorskip(package, reason=f"needs the extra {sink}")
    assert train(saved, "--seeds", 2, "--out", "run", "--sink", word, "--json") == 0
    assert json.loads(capsys.readouterr().out)["finished"], "nothing but the result is on standard output"
    (found,) = shown(sink, tmp_path)
    assert [step for step, _ in found.metrics["member-1/imitation_loss"]] == [10, 20]
    assert call("judge", "run", "--all-members", "--model", "tabular", "--quiet", "--sink", word) == 0
    (found,) = shown(sink, tmp_path)
    assert [step for step, _ in found.metrics["member-1/imitation_loss"]] == [10, 20]
    assert "member-0" in found.verdict
    assert "member-1" in found.verdict
    assert "<!DOCTYPE html>" in found.page


def test_a_complete_run_is_sent_when_it_is_resumed(saved, tmp_path, capsys):
    pytest.importorskip("tensorboardX", reason="needs the extra tensorboard")
    pytest.importorskip("tensorboard", reason="reads event files")
    assert train(saved, "--out", "run") == 0
    assert call("resume", "run", "--sink", "tensorboard") == 0
    assert "there is nothing to resume; sent to tensorboard" in capsys.readouterr().out
    (found,) = shown("tensorboard", tmp_path)
    assert [step for step, _ in found.metrics["member-0/imitation_loss"]] == [10, 20]
    assert call("resume", "run") == 0
    assert "sent to" not in capsys.readouterr().out


def test_a_saved_policy_has_no_run_to_show(saved, tmp_path, capsys):
    assert train(saved, "--out", "run") == 0
    assert call("export", "run", "--out", "policy", "--no-onnx", "--quiet") == 0
    assert call("judge", "policy", "--data", saved, "--sink", "tensorboard") == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "policy is a saved policy: --sink shows runs. fix: name its run folder, or drop --sink" in said


@pytest.mark.full
def test_a_killed_run_is_continued_in_the_same_tracker_run(sink, word, saved, tmp_path):
    """The process is gone between two reports, before any checkpoint; what TensorBoard and W&B had not written is lost.

    A row that was sent just before the end may be sent again.
    """
    for package in PACKAGES[sink]:
        pytest.importorskip(package, reason=f"needs the extra {sink}")
    words = ["train", "bc", "--data", saved, "--steps", 40_000, "--eval-every", 200, "--preset", "none", *SMALL]
    words += ["--quiet", "--out", tmp_path / "run", "--save-seconds", 3600, "--sink", word]
    code = f"from tidelog.cli import main; main({[str(one) for one in words]!r})"
    own = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}  # of this process
    process = subprocess.Popen([sys.executable, "-c", code], env=own, stderr=subprocess.PIPE)
    try:
        rows, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
        while not rows.is_file() or rows.read_bytes().count(b"\n") < 5:
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.communicate()
    run = load_run(tmp_path / "run", sinks=[open_sink(word, tmp_path / "run")])
    assert run.update == 0
    for _ in run.stream(until=6000):
        pass
    (found,) = shown(sink, tmp_path)
    for name, pairs in expected(run.metrics).items():
        updates = [update for update, _ in found.metrics[name]]
        assert updates == sorted(updates), name
        assert len(updates) <= len(set(updates)) + 1
        assert set(updates) <= {update for update, _ in pairs}
        assert max(updates) == max(update for update, _ in pairs)
        assert sink != "mlflow" or set(updates) == {update for update, _ in pairs}
