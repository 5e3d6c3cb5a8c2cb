"""One process trains a run at a time; a run folder that goes away ends its run, and a signal saves it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import pytest

from tests.training.runs import all_of, bc, begin, finish, stop_at
from tidelog import load_run, resume
from tidelog.errors import CheckpointError
from tidelog.training import record

HOLDER = """
import sys
from pathlib import Path
from tidelog.training.record import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_killed(halted):
    """The refusal names the process; nothing is broken by hand after a kill."""
    before = {path: path.read_bytes() for path in (halted / "checkpoints").rglob("*") if path.is_file()}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(halted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        said = rf"is being trained by process {holder.pid} on .* since .*\. fix: wait for it, or stop it"
        with pytest.raises(CheckpointError, match=said):
            resume(halted)
        with pytest.raises(CheckpointError, match=said):
            finish(load_run(halted))
        assert load_run(halted).update == 14, "reading is allowed"
        holder.kill()
    assert {path: path.read_bytes() for path in (halted / "checkpoints").rglob("*") if path.is_file()} == before
    assert finish(load_run(halted)).update == 42
    assert (halted / record.LOCK).read_text() == ""


def test_a_run_that_went_on_since_it_was_loaded_is_refused(halted):
    early, late = load_run(halted), load_run(halted)
    whole = all_of(finish(late))
    with pytest.raises(CheckpointError, match="was trained by another process since it was loaded"):
        finish(early)
    assert all_of(load_run(halted)) == whole


def test_an_owner_that_has_not_written_its_name_is_another_process(halted):
    with record.locked(halted):
        (halted / record.LOCK).write_text("")
        with pytest.raises(CheckpointError, match="is being trained by another process"), record.locked(halted):
            pass


def test_a_run_folder_that_was_deleted_or_moved_ends_the_run(halted, tmp_path):
    """It does not come back with half of its files."""
    run = load_run(halted)
    stream = run.stream()
    next(stream)
    halted.rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="was moved or deleted while the run was training"):
        list(stream)
    assert not halted.exists()
    shutil.move(tmp_path / "moved", halted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert finish(load_run(halted)).update == 42


def test_a_changed_record_is_refused(halted):
    content = json.loads((halted / "run.json").read_text())
    content["configs"][0]["learning_rate"] = 0.5
    (halted / "run.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"run\.json was changed after it was written: its checksum differs"):
        load_run(halted)


def test_metrics_that_are_lost_are_said(halted):
    """The last checkpoint knows how long the file was."""
    os.truncate(halted / "metrics.jsonl", 10)
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl differs from what it was at the checkpoint \(10 of"):
        load_run(halted)


def test_a_link_in_transport_of_the_lock_is_not_followed(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / record.LOCK).symlink_to(mine)
    with (
        pytest.raises(CheckpointError, match=r"training\.lock cannot be written"),
        record.locked(tmp_path / "run"),
    ):
        pass
    assert mine.read_text() == "kept"


# A signal during training: the chunk ends, a checkpoint is written, and the process leaves with 130 or 143.


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
