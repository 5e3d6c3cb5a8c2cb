"""Tiny runs that tests stop, break, resume and compare."""

import errno
import itertools
import json
import time
from types import SimpleNamespace

from tidelog import BC, IQL, fit, load_run
from tidelog._files import digest
from tidelog.policies.policy import fingerprint
from tidelog.sinks import read_rows
from tidelog.training import engine
from tidelog.training import run as run_module

TINY = {"hidden": (8, 8), "embedding": 2, "batch_size": 32}
STEPS, EVERY = 42, 14
LOSS = "held_out/imitation_loss"


def bc(**changes):
    """Behaviour cloning that compiles in a second."""
    return BC(**{**TINY, "learning_rate": 1e-2, **changes})


def iql(**changes):
    return IQL(**{**TINY, **changes})


def begin(algorithm, log, out=None, **options):
    """A prepared run of a few updates, a sixth of the episodes held out."""
    return fit(
        algorithm, log, **{"steps": STEPS, "eval_every": EVERY, "held_out": 0.2, "out": out, **options}, train=False
    )


def finish(run):
    for _ in run.stream():
        pass
    return run


def stop_at(run, update):
    """Train until the first chunk that reaches an update, then walk away."""
    for _ in run.stream():
        if run.update >= update:
            break
    return run


def chunks_of(size, monkeypatch):
    """Let every chunk have that many updates (fewer at a report), whatever the clock says.

    The times in a report are of a steady clock: checkpoints hold the length of the metrics file, digits of times in it.
    """
    steady = SimpleNamespace(monotonic=itertools.count(0.0, 0.25).__next__)
    monkeypatch.setattr(engine, "time", steady)

    class Steady(run_module._Pace):
        def add_chunk(self, updates):
            self.chunk = size

        def __init__(self, settings_steps):
            super().__init__(settings_steps)
            self.chunk = size

    monkeypatch.setattr(run_module, "_Pace", Steady)


def untimed(rows):
    """The rows of a run's reports without times."""
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def all_of(run):
    """Everything that a resumed run has to repeat: learners to the last bit, metrics, best policies."""
    members = run.members if run.record.options.best_metric else []
    best = [fingerprint(run.best_policy(member=one.index).params) for one in members]
    rows = untimed(read_rows(run.folder / "metrics.jsonl"))
    return [fingerprint(learner) for learner in run.learners()], untimed(run.metrics), best, rows


def learnt_of(run):
    """Learners to the last bit and reports without times: what a run without a folder has to repeat."""
    return [fingerprint(learner) for learner in run.learners()], untimed(run.metrics)


def reopened(folder, **options):
    return finish(load_run(folder, **options))


def wait_until(condition, seconds=120):
    """What a condition comes to once it holds."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def full(*args, **options):
    """What the system does where the disk is full."""
    raise OSError(errno.ENOSPC, "No space left on device")


def write_record(folder, content):
    """Write the changed content of a run.json, with the checksum that belongs to it."""
    body = {name: value for name, value in content.items() if name != "sha256"}
    (folder / "run.json").write_text(json.dumps({**body, "sha256": digest(body)}))
