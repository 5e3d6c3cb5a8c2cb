"""Sweeps in processes of their own that are killed or interrupted: the results are those of a direct `fit`."""

import os
import signal
import subprocess
import sys

import pytest

import tidelog as tl
from tests.training.runs import LOSS, bc, begin, finish, wait_until
from tidelog.parallel import ProcessPool
from tidelog.policies.policy import fingerprint
from tidelog.sweeps.job import trial_folder
from tidelog.sweeps.sweep import Driver
from tidelog.training.record import Record

pytestmark = pytest.mark.full

RATES, LONG = (1e-4, 1e-3, 1e-2), 30_000  # the first one overfits least
OPTIONS = {"steps": LONG, "eval_every": 10_000, "best_metric": LOSS, "selection_share": 0.25}
SWEEP = """
import sys
import tidelog as tl
trials = tl.grid(tl.BC(hidden=(8, 8), embedding=2, batch_size=32), learning_rate={rates})
tl.sweep(trials, tl.Log.load({log!r}), {steps}, out={out!r}, eval_every=10_000, best_metric={best!r},
         save_seconds=0.1, halving=(3, 10_000), workers=2, progress=False)
"""


def owner(folder):
    """The process that trains a run, if any."""
    lock = folder / "run" / "training.lock"
    text = lock.read_text() if lock.exists() else ""
    return int(text.split('"process":')[1].split(",")[0]) if text else None


def in_the_middle(folder):
    """Whether a trial has a checkpoint that is neither the first nor the last one."""
    checkpoints = folder / "run" / "checkpoints"
    updates = [int(path.name) for path in checkpoints.iterdir() if path.name.isdigit()] if checkpoints.is_dir() else []
    return 0 < max(updates, default=0) < LONG and owner(folder)


def states(sweep):
    return [[fingerprint(one) for one in tl.load_run(sweep.run_folder(trial)).learners()] for trial in sweep.complete()]


@pytest.fixture(scope="module")
def direct(origin):
    run = finish(begin(bc(learning_rate=RATES[0]), origin, **OPTIONS))
    return [fingerprint(one) for one in run.learners()]


@pytest.fixture
def begun(saved, tmp_path):
    """A sweep in a process of its own, and its folder."""
    out = tmp_path / "sweep"
    script = SWEEP.format(rates=RATES, log=str(saved), steps=LONG, out=str(out), best=LOSS)
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    yield process, out
    process.kill()
    process.communicate()


def test_killed_workers_and_a_killed_driver_change_nothing(begun, direct):
    process, out = begun
    first, second = trial_folder(out, 0), trial_folder(out, 1)
    worker = wait_until(lambda: in_the_middle(first))
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: in_the_middle(first) not in (None, False, worker))
    workers = [one for one in (owner(first), owner(second)) if one]
    process.kill()
    process.wait()
    for one in workers:  # a worker ends when its driver does
        wait_until(lambda one=one: not os.path.exists(f"/proc/{one}"))
    assert not (first / "status.json").exists() or tl.Sweep(out).complete() == []
    sweep = tl.resume(out, workers=1, progress=False)
    assert [row["state"] for row in sweep.table].count("complete") == 1
    assert sweep.table[0]["state"] == "complete"
    assert states(sweep) == [direct]
    assert [one.compared for one in sweep.decisions] == [[0, 1, 2]]


def test_ctrl_c_leaves_a_sweep_that_goes_on(begun, direct):
    process, out = begun
    worker = wait_until(lambda: in_the_middle(trial_folder(out, 0)))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert "KeyboardInterrupt" in process.stderr.read()
    assert not os.path.exists(f"/proc/{worker}")
    assert states(tl.resume(out, workers=1, progress=False)) == [direct]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_saves_and_ends_with_its_driver(ending, saved, tmp_path):
    folder = trial_folder(tmp_path / "sweep", 0)
    script = f"""
import tidelog as tl
tl.sweep(tl.BC(hidden=(8, 8), embedding=2, batch_size=32), tl.Log.load({str(saved)!r}), 2_000_000_000,
         out={str(tmp_path / "sweep")!r}, eval_every=1_000, save_seconds=10_000.0, progress=False)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    reports = folder / "run" / "metrics.jsonl"
    wait_until(lambda: reports.exists() and reports.read_text())
    worker = owner(folder)
    process.send_signal(ending)
    assert process.wait(60) != 0
    wait_until(lambda: not os.path.exists(f"/proc/{worker}"), 30)
    assert max(int(path.name) for path in (folder / "run" / "checkpoints").iterdir()) >= 1_000
    assert not (folder / "status.json").exists()


def test_trials_run_at_once_on_cores_of_their_own(origin, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    sweep = tl.sweep(
        tl.grid(bc(), learning_rate=(1e-2, 1e-3)), origin, LONG, out=tmp_path / "sweep", train=False, progress=False
    )

    Driver(sweep.folder, ProcessPool()).run(False)
    assert [Record.read(sweep.run_folder(trial)).machine["threads"] for trial in (0, 1)] == [1, 1]
