"""Checks and conversions that `fit`, `learn` and `finetune` share, before the training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.algorithms.core.contract import Algorithm
from tidelog.errors import ConfigError
from tidelog.training.runs.options import Evaluator, whole
from tidelog.training.runs.record import Record


def as_algorithms(algorithm: Any) -> list[Any]:
    """Return one or several algorithms as a list; ConfigError for anything else."""
    algorithms = list(algorithm) if isinstance(algorithm, list | tuple) else [algorithm]
    if not algorithms:
        raise ConfigError("algorithm: found an empty list, expected at least one algorithm. fix: pass tl.IQL()")
    for one in algorithms:
        if isinstance(one, type):
            raise ConfigError(f"algorithm: {one.__name__} is a class, expected an instance. fix: pass {one.__name__}()")
        if not isinstance(one, Algorithm):
            raise ConfigError(f"algorithm = {one!r}: expected an algorithm or a list of them. fix: pass tl.IQL()")
    return algorithms


def evaluators(evaluate: Mapping[str, Evaluator]) -> tuple[dict[str, int], dict[str, Any]]:
    """Split `evaluate` into episodes by environment and the user's own functions; ConfigError for a number below 1."""
    if not isinstance(evaluate, Mapping):
        raise ConfigError(f"evaluate = {evaluate!r}: expected {{environment: episodes}} or {{name: function}}")
    own = {name: value for name, value in evaluate.items() if callable(value)}
    episodes = {name: whole(f"evaluate['{name}']", value) for name, value in evaluate.items() if name not in own}
    for name, count in episodes.items():
        if count < 1:
            raise ConfigError(f"evaluate['{name}'] = {count}: expected at least 1 episode. fix: use 10")
    return episodes, own


def as_path(name: str, value: Any) -> Path | None:
    """Return a path, or None; ConfigError with that name if it is no path."""
    if value is not None and not isinstance(value, str | Path):
        raise ConfigError(f"{name} = {value!r}: expected a path")
    return None if value is None else Path(value)


def check_free(out: str | Path | None) -> None:
    """Raise ConfigError if the path of a run's folder is a file, or a folder that is not empty."""
    if out is None:
        return
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, expected a folder; nothing was written. fix: choose another folder")
    if folder.exists() and any(folder.iterdir()):
        is_run = (folder / "run.json").exists()
        what, other = ("a run", f", or resume it with `tidelog resume {folder}`") if is_run else ("no run", "")
        raise ConfigError(
            f"{folder} exists and is not empty ({what}); nothing was written. fix: choose another folder{other}"
        )


def new_folder(out: str | Path | None, record: Record) -> Path | None:
    """Create the run folder with its record, or return None; ConfigError if the folder is not empty."""
    if out is None:
        return None
    check_free(out)
    folder = Path(out)
    try:
        record.write(folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be created: {error}. fix: choose another folder") from error
    return folder
