"""`tidelog finetune RUN --env NAME`: continue an offline run in an environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from tidelog.cli.flags import (
    Env,
    EnvironmentFlags,
    Folder,
    RunFolder,
    check_targets,
    free_folder,
    is_run,
    options_in,
    parse,
    verb_flags,
)
from tidelog.cli.next_lists import refuse_lists
from tidelog.cli.run_result import train_and_show
from tidelog.errors import ConfigError
from tidelog.sinks import open_sink
from tidelog.training.fit import load
from tidelog.training.learn import finetune
from tidelog.training.record import Record


@dataclass(kw_only=True)
class FinetuneFlags(EnvironmentFlags):
    """Continue an offline run in an environment, on its log and new experience."""

    run: tyro.conf.Positional[RunFolder]
    """the run folder"""
    env: Env
    """a built-in environment, a functional one (jax:NAME) or a gymnasium id; its spaces must be those of the log"""
    out: Folder | None = None
    """the new run folder; default: runs/<algorithm>-online, with a number if it exists"""


Finetune = verb_flags(
    "finetune", FinetuneFlags, steps=20_000, offline=0.5, updates=1.0, collect_every=10, restart_schedules=False
)


def run(words: list[str]) -> int:
    """Fine-tune a run and print the result."""
    options = parse(Finetune, words, "finetune")
    refuse_lists(Path(options.run), Record.read(Path(options.run)), "finetune")
    offline_run = load(options.run)
    folder = Path(options.out) if options.out else free_folder(f"{offline_run.record.algorithm}-online")
    arguments = options_in(options, "finetune")
    if folder.exists() and folder.samefile(options.run):
        raise ConfigError(f"--out {folder} is the run that is continued", fix="choose another folder")
    check_targets(folder if options.overwrite else None, overwrite=True, replaceable=is_run)
    sinks = [open_sink(word, folder) for word in options.sink]
    training = finetune(
        offline_run, options.env, out=folder, sinks=sinks, overwrite=options.overwrite, train=False, **arguments
    )
    return train_and_show(training, options.quiet, options.json)
