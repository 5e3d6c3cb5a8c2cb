"""The calls of a study, made by processes of this machine, each on one core, and each call once.

A call is a function of a module and arguments of JSON. What it returns is in a file of its own, so a study that was
killed goes on with the calls that are left.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Call = tuple[Callable[..., Any], Sequence[Any]]


def spread(calls: Mapping[str, Call], folder: Path, workers: int) -> list[Any]:
    """What the calls return, in their order; `folder` keeps it by their names. RuntimeError names one that failed."""
    paths = {name: folder / "done" / f"{name}.json" for name in calls}
    (folder / "done").mkdir(parents=True, exist_ok=True)
    left = {name: call for name, call in calls.items() if not paths[name].exists()}
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers > most:
        raise ValueError(f"workers = {workers}: this machine has {most} cores. fix: use at most {most}")
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for number in range(workers):
        cores.put(number)
    with ProcessPoolExecutor(workers, context, initializer=_keep_to_a_core, initargs=(cores,)) as pool:
        futures = {pool.submit(_make, *call, paths[name]): name for name, call in left.items()}
        for count, future in enumerate(as_completed(futures), len(calls) - len(left) + 1):
            if (problem := future.exception()) is not None:
                pool.shutdown(cancel_futures=True)
                raise RuntimeError(f"{futures[future]}: {problem!r}") from problem
            print(f"{count} of {len(calls)}", flush=True)
    return [json.loads(path.read_text()) for path in paths.values()]


def _make(function: Callable[..., Any], arguments: Sequence[Any], path: Path) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(function(*arguments)))
    part.replace(path)


def _keep_to_a_core(cores: Any) -> None:
    """Before JAX computes anything, which sizes its threads by the cores."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {mine[cores.get() % len(mine)]})
