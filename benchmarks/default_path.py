"""What a new user gets: `tidelog train iql --data LOG` with its defaults, its verdict, and what this recommends."""

import contextlib
import io
import itertools
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import tidelog as tl
from tidelog.cli import main
from tidelog.data.read import read_log
from tidelog.ope.rules import has_rules, rules_of_run
from tidelog.training.record import Record
from tidelog.training.run import policy_of_run

PROGRAMS_OF = 20  # trainings whose compiled programs stay in this process; those of hundreds do not fit
_MADE = itertools.count()
os.environ.setdefault("TIDELOG_STATE", "off")  # each log is new: no earlier look counts


class Likeliest:
    """A policy as it acts by its likeliest actions."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def probabilities(self, observation: Any, mask: Any = None) -> np.ndarray:
        """[B, A]: 1 for the action, 0 for the others."""
        known = self.policy.probabilities(observation, mask)
        return np.eye(known.shape[1])[known.argmax(1)]


class Outcome(NamedTuple):
    """The end of the default path."""

    name: str | None  # what is recommended; None: keep what you have
    policy: Any  # what is recommended, with `probabilities`; None: keep what you have
    candidates: dict[str, Any]  # everything that was judged, by name
    decisions: dict[str, str]  # of each candidate
    held_out: tl.Log  # the episodes that it was judged on
    level: float  # of the simultaneous intervals


def default_path(log: tl.Log, folder: Path, *words: str) -> Outcome:
    """Train and judge as the command does, in this process, with more `words` for the command; `folder` is emptied."""
    if next(_MADE) % PROGRAMS_OF == PROGRAMS_OF - 1:
        jax.clear_caches()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source, run = folder / "log", folder / "run"
    log.save(source)
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(["train", "iql", "--data", str(source), "--out", str(run), "--json", *words])
    if code:
        sys.stderr.write(errors.getvalue())
        raise RuntimeError(f"the command ended with {code}")
    judged = json.loads(output.getvalue())["judged"]
    record = Record.read(run)
    policy = policy_of_run(run)
    candidates: dict[str, Any] = {"likeliest actions": Likeliest(policy), "sampled actions": policy}
    rules = rules_of_run(run, record) if has_rules(record.spec) else {}
    candidates |= rules
    decisions = {}
    for file in sorted((run / "verdicts").glob("*.json")):
        verdict = json.loads(file.read_text())
        decisions[file.stem] = verdict["decision"]
    held_out = read_log(source).split(1.0 - record.options.held_out, record.options.split_seed)[1]
    name = judged["recommended"]
    return Outcome(name, None if name is None else candidates[name], candidates, decisions, held_out, judged["level"])
