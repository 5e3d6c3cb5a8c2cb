"""The calls of a study, made by the engines of tidelog: on this machine or in a Ray cluster, each once.

A call is a function of a module and arguments of JSON. What it returns is in a file of its own, so a study that was
killed goes on with the calls that are left; a worker that is lost loses the call that it was making.
"""

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.sweeps.engines import FILES
from tidelog.sweeps.engines.named import engine_of
from tidelog.sweeps.fan_out import fan_out, groups_of

Call = tuple[Callable[..., Any], Sequence[Any]]


def spread(calls: Mapping[str, Call], folder: Path, workers: int, on: str = "here") -> list[Any]:
    """What the calls return, in their order; `folder` keeps it by their names. RuntimeError names one that failed."""
    (folder / "done").mkdir(parents=True, exist_ok=True)
    described = [[name, *_named(function), list(arguments)] for name, (function, arguments) in calls.items()]
    (folder / FILES).write_text(json.dumps(described))
    paths = [_result(folder, name) for name in calls]

    def left(numbers: Sequence[int]) -> list[int]:
        return [number for number in numbers if not paths[number].exists()]

    def tell() -> None:
        nonlocal known
        count = len(paths) - len(left(range(len(paths))))
        if count != known:
            print(f"{count} of {len(paths)}", flush=True)
            known = count

    known = -1
    tell()
    if waiting := left(range(len(paths))):
        groups = groups_of(waiting, workers)
        engine = engine_of(on, 1, workers, len(groups))
        for number, reason in fan_out(folder, __name__, groups, engine, left, tell).items():
            raise RuntimeError(f"{described[number][0]}: {reason}")
    return [json.loads(path.read_text()) for path in paths]


def work_on(folder: Path, numbers: Sequence[int]) -> None:
    """Make the calls of these numbers, one after another."""
    described = json.loads((folder / FILES).read_text())
    for name, module, function, arguments in (described[number] for number in numbers):
        path = _result(folder, name)
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_text(json.dumps(getattr(importlib.import_module(module), function)(*arguments)))
            part.replace(path)


def _named(function: Callable[..., Any]) -> tuple[str, str]:
    """Module and name of a function, also of the module that was started by `python -m`."""
    module = sys.modules[function.__module__]
    return module.__name__ if module.__spec__ is None else module.__spec__.name, function.__name__


def _result(folder: Path, name: str) -> Path:
    return folder / "done" / f"{name}.json"
