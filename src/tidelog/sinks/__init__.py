"""Sinks that show runs in experiment trackers, each an extra: MLflow, TensorBoard and Weights & Biases.

`tracker` holds what they share; every other module is one tracker. `open_sink` makes one by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tidelog.errors import ConfigError, nearest
from tidelog.sinks.mlflow import MLflow
from tidelog.sinks.tensorboard import TensorBoard
from tidelog.sinks.tracker import RunFacts, SinkWarning, Tracker
from tidelog.sinks.wandb import PROJECT as WANDB_PROJECT
from tidelog.sinks.wandb import WandB

__all__ = [
    "SINKS",
    "MLflow",
    "RunFacts",
    "SinkWarning",
    "TensorBoard",
    "Tracker",
    "WandB",
    "open_sink",
]

# By name: make a sink from the text after the colon, and from the run folder.
SINKS: Mapping[str, Callable[[str | None, Path], Tracker]] = {
    "mlflow": lambda target, folder: MLflow(target),
    "tensorboard": lambda target, folder: TensorBoard(target or folder / "tensorboard"),
    "wandb": lambda target, folder: WandB(target or WANDB_PROJECT),
}


def open_sink(word: str, folder: Path) -> Tracker:
    """Make a sink from `NAME` or `NAME:TARGET`; ConfigError for an unknown name, and without the sink's package."""
    name, _, target = word.partition(":")
    if name not in SINKS:
        raise ConfigError(f"unknown sink '{name}': {nearest(name, SINKS)}")
    sink = SINKS[name](target or None, folder)
    sink.word = word
    return sink
