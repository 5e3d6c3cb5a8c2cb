"""`tidelog finetune RUN --env NAME`: a run that learnt from a log goes on in an environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from tidelog.cli.environment_flags import EnvironmentFlags, free_folder, sink_of, trained_with_notes
from tidelog.cli.flags import options_in, parse, verb_flags
from tidelog.training.finetune import finetune
from tidelog.training.resume import load


@dataclass(kw_only=True)
class FinetuneFlags(EnvironmentFlags):
    """Go on in an environment with every seed of a run that learnt from a log, on a mix of the log and of own play."""

    run: tyro.conf.Positional[str]
    """the run folder"""
    env: str
    """a built-in environment, a functional one (jax:NAME) or a gymnasium id; its spaces are the log's"""
    out: str | None = None
    """the new run's folder; default: runs/<algorithm>-online, with a number if that is taken"""


Finetune = verb_flags(
    "finetune", FinetuneFlags, steps=20_000, offline=0.5, updates=1.0, collect_every=10, restart_schedules=False
)


def run(words: list[str]) -> int:
    """Fine-tune, and say what came of it."""
    options = parse(Finetune, words, "finetune")
    begun = load(options.run)
    folder = Path(options.out) if options.out else free_folder(f"{begun.record.algorithm}-online")
    sinks = [sink_of(kind, folder) for kind in options.sink]
    given = options_in(options, "finetune")
    return trained_with_notes(finetune(begun, options.env, out=folder, sinks=sinks, train=False, **given))
