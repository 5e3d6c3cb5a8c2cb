"""Processes of a study: each of many calls once, calls side by side, a call in a process of its own, its memory."""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Call = tuple[Callable[..., Any], Sequence[Any]]
ROOT = Path(__file__).resolve().parents[1]
ONE_CORE = "--xla_cpu_multi_thread_eigen=false"  # products of small matrices lose by being split among threads


def scratch(name: str) -> Path:
    """The folder of a study's parts that are not kept, in the temporary folder of this machine."""
    return Path(tempfile.gettempdir()) / f"tidelog-{name}"


def spread(calls: Mapping[str, Call], folder: Path, workers: int) -> list[Any]:
    """What calls return, in their order, made by processes on one core each; RuntimeError names one that failed.

    A call is a function of a module and arguments of JSON. What it returns is in a file of its name in `folder`, so
    that a study that was stopped goes on with the calls that are left.
    """
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


def side_by_side(function: Callable[..., Any], tasks: Sequence[tuple]) -> list[Any]:
    """What the function returns for the arguments of every task, in their order, in a process for each core."""
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), _one_thread) as pool:
        return [future.result() for future in [pool.submit(function, *task) for task in tasks]]


def _one_thread() -> None:
    """Before the first array is made, when XLA reads its flags."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_CORE}".strip()


def words_of(function: Callable[..., Any], *arguments: Any, one_core: bool = False) -> list[str]:
    """The command of a process that calls a function of a module with arguments of JSON, and prints what it returns."""
    core = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); " if one_core else ""
    load = f"import json, sys; from {function.__module__} import {function.__name__} as call; "
    return [
        sys.executable,
        "-c",
        f"{core}{load}print(json.dumps(call(*json.loads(sys.argv[1]))))",
        json.dumps(arguments),
    ]


def called(function: Callable[..., Any], *arguments: Any, one_core: bool = False, **environment: str) -> Any:
    """What a function returns in a process of its own, with further variables of the environment."""
    known = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])} | environment
    words = words_of(function, *arguments, one_core=one_core)
    done = subprocess.run(words, env=known, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def anonymous() -> int:
    """Bytes of this process that no file backs."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@contextmanager
def peak_memory(every: float = 0.01) -> Iterator[list[int]]:
    """The most anonymous memory that this process holds inside, in bytes: the only element, right at the end."""
    peak, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(every):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
