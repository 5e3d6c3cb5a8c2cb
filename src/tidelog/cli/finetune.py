"""`tidelog finetune RUN --env NAME`: a run that learnt from a log goes on in an environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from tidelog.cli.environment_flags import Playing, free_folder, play
from tidelog.cli.flags import parse
from tidelog.training.fit import load


@dataclass(kw_only=True)
class Finetune(Playing):
    """Go on in an environment with every seed of a run that learnt from a log, on a mix of the log and of own play."""

    run: tyro.conf.Positional[str]
    """the run folder"""
    env: str
    """a built-in environment, a functional one (jax:NAME) or a gymnasium id; its spaces are the log's"""
    steps: int = 20_000
    """decisions a seed"""
    out: str | None = None
    """the new run's folder; default: runs/<algorithm>-online, with a number if that is taken"""
    offline: float = 0.5
    """share of a minibatch that comes from the log"""
    updates: float = 1.0
    """updates a decision"""
    collect_every: int = 10
    """decisions that are made before updates follow"""
    restart_schedules: bool = False
    """learning rates follow the algorithm's schedules anew over the updates to come; default: they are constant"""


def run(words: list[str]) -> int:
    """Fine-tune, and say what came of it."""
    options = parse(Finetune, words, "finetune")
    begun = load(options.run)
    folder = Path(options.out) if options.out else free_folder(f"{begun.record.algorithm}-online")
    mix = {name: getattr(options, name) for name in ("offline", "updates", "collect_every", "restart_schedules")}
    return play(begun, options, folder, **mix)
