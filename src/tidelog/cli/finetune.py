"""`tidelog finetune RUN --env NAME`: a run that learnt from a log goes on in an environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from tidelog.cli.options import parse
from tidelog.cli.tables import say, trained
from tidelog.cli.train import _episodes, _free_folder, _sink
from tidelog.training.fit import load
from tidelog.training.learn import prepare_learning


@dataclass
class Finetune:
    """Go on in an environment with every seed of a run that learnt from a log, on a mix of the log and of own play."""

    run: tyro.conf.Positional[str]
    """the run folder"""
    env: str
    """a built-in environment, a functional one (jax:NAME) or a gymnasium id; its spaces are the log's"""
    steps: int = 20_000
    """decisions a seed"""
    offline: float = 0.5
    """share of a minibatch that comes from the log"""
    updates: float = 1.0
    """updates a decision"""
    collect_every: int = 10
    """decisions that are made before updates follow"""
    out: str | None = None
    """the new run's folder; default: runs/<algorithm>-online, with a number if that is taken"""
    evaluate: tuple[str, ...] = ()
    """environments to play at every report, as NAME=EPISODES; sampled:NAME=EPISODES draws the actions"""
    every: int | None = None
    """decisions between reports; default: 50 reports a run"""
    best: str | None = None
    """keep the policy at the best report of this metric"""
    patience: int | None = None
    """stop after so many reports without a better one"""
    save_seconds: float = 30.0
    """time between two checkpoints"""
    log_out: str | None = None
    """write all that was played as a log once the run is complete, with propensities where the policy has a density"""
    sink: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """where metrics go besides the run folder"""


def run(words: list[str]) -> int:
    """Fine-tune, and say what came of it."""
    options = parse(Finetune, words, "finetune")
    begun = load(options.run)
    folder = Path(options.out) if options.out else _free_folder(f"{begun.record.algorithm}-online")
    training = prepare_learning(
        begun,
        options.env,
        options.steps,
        out=folder,
        evaluate=_episodes(options.evaluate),
        every=options.every,
        best=options.best,
        patience=options.patience,
        save_seconds=options.save_seconds,
        log_out=options.log_out,
        sinks=[_sink(kind, folder) for kind in options.sink],
        offline=options.offline,
        updates=options.updates,
        collect_every=options.collect_every,
    )
    for note in training.notes():
        say(f"note: {note}")
    return trained(training)
