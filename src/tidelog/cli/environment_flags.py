"""Common flags of training commands: environments, run folders and metric sinks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tidelog.cli.flags import Env, Folder

SinkName = Annotated[str, "NAME[:TARGET]"]


@dataclass(kw_only=True)
class EnvironmentFlags:
    """Flags of every run in an environment."""

    env: Env
    """a built-in environment, a functional one (jax:NAME), envpool:ID or a gymnasium id"""
    out: Folder | None = None
    """the run folder; default: runs/<algorithm>, with a number if it exists"""
    overwrite: bool = False
    """replace the run in the folder of --out"""
    quiet: bool = False
    """print the result only, without progress"""
    json: bool = False
    """print the result as JSON; everything else goes to standard error"""
    sink: tuple[SinkName, ...] = ()
    """also show the run in a tracker, such as mlflow, or mlflow:URI for another than its default one"""


def free_folder(name: str, parent: str = "runs") -> Path:
    """`runs/name`, or `runs/name-N` with the first free number."""
    folder, number = Path(parent) / name, 1
    while folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        number += 1
        folder = Path(parent) / f"{name}-{number}"
    return folder
