"""Processes of a study: each of many calls once, a call in a process of its own, another Python."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SINGLE = {  # one core a process: products of small matrices lose by being split among threads
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def scratch(name: str) -> Path:
    """The folder of a study's parts that are not kept, in the temporary folder of this machine."""
    return Path(tempfile.gettempdir()) / f"tidelog-{name}"


def spread(calls: Iterable[tuple[Any, ...]], folder: Path, workers: int = 0) -> list[Any]:
    """What calls return, in their order, made by processes on one core each; RuntimeError names one that failed.

    A call is a function of a module and arguments of JSON. What it returns is in a file in `folder`, named by both, so
    that a study that was stopped goes on with the calls that are left. Without `workers` every core has one.
    """
    done = folder / "done"
    done.mkdir(parents=True, exist_ok=True)
    paths = {done / _file_of(*call): call for call in calls}
    left = {path: call for path, call in paths.items() if not path.exists()}
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers > most:
        raise ValueError(f"workers = {workers}: this machine has {most} cores. fix: use at most {most}")
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for number in range(workers or most):
        cores.put(number)
    with ProcessPoolExecutor(workers or most, context, initializer=_keep_to_a_core, initargs=(cores,)) as pool:
        futures = {pool.submit(_make, path, *call): path.stem for path, call in left.items()}
        for count, future in enumerate(as_completed(futures), len(paths) - len(left) + 1):
            if (problem := future.exception()) is not None:
                pool.shutdown(cancel_futures=True)
                raise RuntimeError(f"{futures[future]}: {problem!r}") from problem
            print(f"{count} of {len(paths)}", flush=True)
    return [json.loads(path.read_text()) for path in paths]


def _file_of(function: Callable[..., Any], *arguments: Any) -> str:
    name = "_".join([function.__name__, *map(str, arguments)])
    return re.sub(r"[^-+.\w]+", "-", name) + ".json"


def _make(path: Path, function: Callable[..., Any], *arguments: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(function(*arguments)))
    part.replace(path)


def _keep_to_a_core(cores: Any) -> None:
    """Before NumPy and JAX are loaded, which size their threads by the cores."""
    os.environ.update(SINGLE)
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {mine[cores.get() % len(mine)]})


def words_of(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The command of a process that calls a function of a module with arguments of JSON, and prints what it returns."""
    load = f"import json, sys; from {function.__module__} import {function.__name__} as call; "
    return [sys.executable, "-c", f"{load}print(json.dumps(call(*json.loads(sys.argv[1]))))", json.dumps(arguments)]


def called(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """What a function returns in a process of its own, with further variables of the environment."""
    known = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])} | environment
    done = subprocess.run(words_of(function, *arguments), env=known, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def own_python(folder: Path, *needs: str, alone: Sequence[str] = ()) -> Path:
    """The Python of an environment, made where it is not there yet; `alone` are installed without what they need."""
    python, done = folder / "bin/python", folder / "installed"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        for words in (needs, ("--no-deps", *alone)) if alone else (needs,):
            ran = subprocess.run([python, "-m", "pip", "install", "-q", *words], capture_output=True, text=True)
            if ran.returncode:
                errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
                raise RuntimeError(f"does not install: {' '.join(errors)[:600] or ran.stderr[-600:]}")
        done.write_text("\n".join([*needs, *alone]))
    return python
