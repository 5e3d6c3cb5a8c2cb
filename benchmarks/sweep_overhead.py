"""What a trial of a sweep costs beside its training.

A trial takes one update of a small network, so nearly all of its time is the start of a process, reading the log,
compiling and saving. A bare start is Python, JAX and one compiled product. Cold is an empty cache of compiled programs,
warm a filled one. The slope over trials that differ in numbers only is what one more trial costs. Everything is done
one after the other on one core, so seconds of the clock are those of one worker.

`python -m benchmarks sweep_overhead [--engines here ray]`
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tidelog as tl
from benchmarks.keep import keep

COMMAND = "python -m benchmarks sweep_overhead"
TRIALS, REPEATS = 24, 3
BARE = "import jax, jax.numpy as jnp; jax.jit(lambda x: x @ x)(jnp.ones((64, 64))).block_until_ready()"
SWEEP = """
import sys, tidelog as tl
count, engine, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
trials = [tl.IQL(hidden=(32, 32), temperature=1.0 + one) for one in range(count)]
tl.sweep(trials, tl.open_log("log.tidelog"), steps=1, out=out, on=engine, workers=1, progress=False)
"""


def seconds(words: list[str], folder: Path, cache: Path) -> float:
    """The time of a process, on one core."""
    environment = {**os.environ, "TIDELOG_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    begin = time.perf_counter()
    subprocess.run(["taskset", "-c", "0", *words], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def of_trials(engine: str, folder: Path) -> dict[str, Any]:
    """Seconds of a sweep of one trial, cold and warm, and of each further one; bytes that a job is."""
    cache = folder / f"cache-{engine}"
    found: dict[str, list[float]] = {"cold": [], "warm": [], "several": []}
    for repeat in range(REPEATS):
        shutil.rmtree(cache, ignore_errors=True)
        for name, count in (("cold", 1), ("warm", 1), ("several", TRIALS)):
            out = folder / f"{engine}-{name}-{repeat}"
            found[name].append(seconds([sys.executable, "-c", SWEEP, str(count), engine, str(out)], folder, cache))
    slopes = [(many - one) / (TRIALS - 1) for many, one in zip(found["several"], found["warm"], strict=True)]
    plan = folder / f"{engine}-warm-0" / "sweep.json"
    row = {"engine": engine, **found, "one_more": slopes, "plan_bytes": plan.stat().st_size}
    print(row, flush=True)
    return row


def study(engines: Sequence[str] = ("here", "ray")) -> None:
    """Measure, and keep what was measured."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tl.collect("treatment", episodes=20_000, seed=0).save(folder / "log.tidelog")
        bare = [seconds([sys.executable, "-c", BARE], folder, folder / "none") for _ in range(REPEATS)]
        print("bare", bare, flush=True)
        trials = [of_trials(engine, folder) for engine in engines]
    keep("sweep_overhead", COMMAND, {"trials": TRIALS, "bare": bare, "engines": trials})
    print(json.dumps({row["engine"]: min(row["one_more"]) - min(bare) for row in trials}))
