"""What commands that train ask for alike, and how a run in an environment is begun from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tidelog.cli.flags import pairs
from tidelog.cli.tables import say, trained
from tidelog.errors import ConfigError
from tidelog.training.learn import prepare_learning
from tidelog.training.runs.sinks import TensorBoard, Trackio, WandB

SinkName = Literal["tensorboard", "wandb", "trackio"]


@dataclass(kw_only=True)
class Playing:
    """Flags of every run in an environment."""

    env: str
    """a built-in environment, a functional one (jax:NAME), procgen/GAME-MODE, envpool:ID or a gymnasium id"""
    steps: int
    """decisions a seed, rounded up to whole rollouts"""
    out: str | None = None
    """the run folder; default: runs/<algorithm>, with a number if that is taken"""
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
    sink: tuple[SinkName, ...] = ()
    """where metrics go besides the run folder"""


def play(learner: Any, options: Playing, folder: Path, **more: Any) -> int:
    """Learn in an environment with an algorithm, or go on with a run, and say what came of it."""
    training = prepare_learning(
        learner,
        options.env,
        options.steps,
        out=folder,
        evaluate=episodes_of(options.evaluate),
        every=options.every,
        best=options.best,
        patience=options.patience,
        save_seconds=options.save_seconds,
        log_out=options.log_out,
        sinks=[sink_of(kind, folder) for kind in options.sink],
        **more,
    )
    for note in training.notes():
        say(f"note: {note}")
    return trained(training)


def episodes_of(values: tuple[str, ...]) -> dict[str, int]:
    """`["Pendulum-v1=10"]` as a mapping; ConfigError says what was expected."""
    expected = "NAME=EPISODES, as in Pendulum-v1=10"
    found = pairs(values, expected)
    for name, count in found.items():
        if not count.isdigit():
            raise ConfigError(f"'{name}={count}': expected {expected}")
    return {name: int(count) for name, count in found.items()}


def sink_of(kind: SinkName, folder: Path) -> Any:
    """A metrics sink by its name."""
    if kind == "tensorboard":
        return TensorBoard(folder / "tensorboard")
    return WandB(project="tidelog", name=folder.name) if kind == "wandb" else Trackio(project="tidelog")


def free_folder(name: str) -> Path:
    """`runs/name`, or with the first number that is free."""
    folder, number = Path("runs") / name, 1
    while folder.exists() and any(folder.iterdir()):
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder
