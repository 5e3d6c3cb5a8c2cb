"""A signal during training: the chunk ends, a checkpoint is written, and the process leaves with 130 or 143."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.training.runs import bc, begin, stop_at
from tidelog import load_run


def started(saved, out):
    """A command line that trains for hours, once it has made its first report."""
    words = ["train", "bc", "--data", saved, "--out", out, "--steps", "1000000000", "--eval-every", "500"]
    small = ["--hidden", "8", "8", "--embedding", "2", "--batch-size", "32", "--save-seconds", "1e9", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *map(str, words), *small], stderr=subprocess.PIPE, text=True
    )
    metrics = out / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    return process


@pytest.mark.full
@pytest.mark.sample("15-143")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_gets_a_signal_saves_and_can_be_resumed(number, code, saved, tmp_path):
    process = started(saved, tmp_path / "run")
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == code, said
    run = load_run(tmp_path / "run")
    saved_at = f"tidelog: saved at update {run.update:,}; `tidelog resume {tmp_path / 'run'}` continues it\n"
    assert said == saved_at + "tidelog: interrupted\n"
    assert run.update >= 500
    last = run.update
    assert stop_at(run, last + 1).update > last


def test_in_a_script_a_signal_lets_the_chunk_end_and_saves_where_it_did(origin, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    run = begin(bc(), origin, tmp_path / "run", save_seconds=1e9)
    stream = run.stream()
    next(stream)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):
        list(stream)
    assert 0 < run.update < 42
    assert load_run(tmp_path / "run").update == run.update
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_interrupt_does_not_wait(origin, tmp_path):
    stream = begin(bc(), origin, tmp_path / "run").stream()
    next(stream)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    stream.close()
    assert load_run(tmp_path / "run").update == 0


LATE = """
import os, signal
from tidelog._machine import Interrupts
try:
    with Interrupts(several=True) as interrupts:
        interrupts.received = signal.SIGTERM  # that of another process
        interrupts.leave()
except SystemExit as leaving:
    os.kill(os.getpid(), signal.SIGTERM)
    raise
"""


def test_a_late_signal_does_not_end_one_of_several_processes_before_the_others():
    assert subprocess.run([sys.executable, "-c", LATE]).returncode == 143
    assert subprocess.run([sys.executable, "-c", LATE.replace("several=True", "")]).returncode == -signal.SIGTERM
