"""What `fit` and `learn` check and make alike, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.algorithms.core.contract import Algorithm
from tidelog.errors import ConfigError
from tidelog.training.runs.options import Evaluator, whole
from tidelog.training.runs.record import Record


def as_algorithms(algorithm: Any) -> list[Any]:
    """One algorithm or several as a list; ConfigError where something is none."""
    algorithms = list(algorithm) if isinstance(algorithm, list | tuple) else [algorithm]
    if not algorithms:
        raise ConfigError("no algorithm was given")
    for one in algorithms:
        if isinstance(one, type):
            raise ConfigError(f"{one.__name__} is a class: pass an algorithm with its numbers, as in {one.__name__}()")
        if not isinstance(one, Algorithm):
            raise ConfigError(f"{one!r} is no algorithm: pass one with its numbers, or a list of them")
    return algorithms


def evaluators(evaluate: Mapping[str, Evaluator]) -> tuple[dict[str, int], dict[str, Any]]:
    """Episodes by environment, and functions of the user's own; ConfigError for a number below 1."""
    if not isinstance(evaluate, Mapping):
        raise ConfigError(f"evaluate = {evaluate!r}: expected {{environment: episodes}} or {{name: function}}")
    own = {name: value for name, value in evaluate.items() if callable(value)}
    episodes = {name: whole(f"evaluate['{name}']", value) for name, value in evaluate.items() if name not in own}
    for name, count in episodes.items():
        if count < 1:
            raise ConfigError(f"evaluate['{name}'] = {count}: expected a number of episodes of at least 1")
    return episodes, own


def as_path(name: str, value: Any) -> Path | None:
    """A place on disk, or None; ConfigError under that name where it is no path."""
    if value is not None and not isinstance(value, str | Path):
        raise ConfigError(f"{name} = {value!r}: expected a path")
    return None if value is None else Path(value)


def check_free(out: str | Path | None) -> None:
    """Raise ConfigError where something stands at the place of a run's folder already."""
    if out is None:
        return
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose another folder, nothing was written")
    if folder.exists() and any(folder.iterdir()):
        mend = f"resume it with `tidelog resume {folder}`" if (folder / "run.json").exists() else "it is not a run"
        raise ConfigError(f"{folder} exists and is not empty ({mend}): choose another folder, nothing was written")


def new_folder(out: str | Path | None, record: Record) -> Path | None:
    """The run folder with its record in it, or None; ConfigError where something stands there already."""
    if out is None:
        return None
    check_free(out)
    folder = Path(out)
    try:
        record.write(folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error}; choose another folder") from error
    return folder
