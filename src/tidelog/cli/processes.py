"""Training in several processes that a launcher starts: the flags by which each one joins the others."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from tidelog.errors import ConfigError
from tidelog.training.processes import Processes, connect_processes, connected

AUTO = "auto"


@dataclass(kw_only=True)
class ProcessFlags:
    """One training in several processes that share each batch; a launcher starts each of them."""

    processes: int | None = None
    """number of processes that train together"""
    coordinator: str | None = None
    """HOST:PORT of rank 0, which all processes reach; "auto" asks Slurm, Open MPI or Kubernetes for all three"""
    rank: int | None = None
    """number of this process, from 0"""
    connect_seconds: float = 300.0
    """wait so long for the other processes"""


def connect(options: Any) -> Processes:
    """Connect this process to the others that the flags name; the ranks after 0 print no results.

    ConfigError without `--out` where a new run begins: all processes must know the folder.
    """
    named = (options.coordinator, options.processes, options.rank)
    if named == (None, None, None):
        return connected()
    if options.coordinator != AUTO and None in named:
        raise ConfigError(
            f"--coordinator {options.coordinator}, --processes {options.processes}, --rank {options.rank}",
            "all three, or --coordinator auto",
            "start each process with the address of rank 0, their number and its rank",
        )
    if getattr(options, "out", "") is None:
        raise ConfigError(
            "several processes write one run folder, which all must know", fix="name it with --out FOLDER"
        )
    if options.coordinator == AUTO:
        named = (None, None, None)
    group = connect_processes(*named, seconds=options.connect_seconds)
    shown = os.devnull if group.rank else os.dup(1)
    sys.stdout = open(shown, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 (until the process ends)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Gloo, which adds gradients up on processors, prints to it
    return group


def leave(code: int) -> None:
    """End this process at once after another one was lost: the end of JAX would wait for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if connected().count > 1:
        os._exit(code)
