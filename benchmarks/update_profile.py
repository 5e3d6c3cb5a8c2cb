"""Profiles of one update: what its time is spent on, and how the compiler's options change it.

`python -m benchmarks update_profile` traces each algorithm at the sizes of `benchmarks.speed`, in a process of its own
on one core, and adds the durations of the compiled operations by what they do. Of each operation the fifth of its runs
that was fastest counts, so that others on the machine change little. Then the options of XLA are compared in turns by
updates per processor second.
"""

import collections
import glob
import gzip
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.keep import keep, median_and_range
from benchmarks.spread import called

COMMAND = "python -m benchmarks update_profile"
ALGORITHMS = ("iql", "bcq", "discrete-bcq", "discrete-bcq-1024", "bc")
UPDATES = {"iql": 300, "bcq": 60}  # traced, else 1,000
PARTS = {  # what an operation does -> a pattern in its opcode or its place in the source
    "matrix products": re.compile(r"^dot |dot_general"), "optimiser": re.compile("/optimiser/"),
    "target networks": re.compile("/target/"), "sampling": re.compile("/sampling/"),
}  # fmt: skip
OTHERS = "activations, losses and metrics"
CONTAINERS = ("while", "call", "conditional")  # what they run has its own times
OPTIONS = {
    "default": "",
    "no YNNPACK": "--xla_cpu_experimental_ynn_fusion_type=",
    "oneDNN": "--xla_cpu_use_onednn=true",
    "vectors of 512 bits": "--xla_cpu_prefer_vector_width=512",
    "scheduler for concurrency": "--xla_cpu_enable_concurrency_optimized_scheduler=true",
    "fast math": "--xla_cpu_enable_fast_math=true",
}
TURNS, SLICES = 5, 6


def study() -> None:
    """Trace, compare the options, and keep both."""
    profiles = {name: profiled(trace, name) for name in ALGORITHMS}
    rates: dict[str, dict[str, list[float]]] = {name: collections.defaultdict(list) for name in ("iql", "discrete-bcq")}
    for name, of_options in rates.items():
        for _ in range(TURNS):
            for option, flags in OPTIONS.items():
                of_options[option].append(called(rate, name, one_core=True, XLA_FLAGS=flags, TIDELOG_CACHE="off"))
    ratios = {
        name: {
            option: median_and_range(over)
            for option, found in of_options.items()
            if (over := np.asarray(found) / of_options["default"]).size
        }
        for name, of_options in rates.items()
    }
    keep("update_profile", COMMAND, {"profiles": profiles, "options over default": ratios, "turns": TURNS})


def profiled(function: Callable[[str, str], Any], name: str) -> Any:
    """What a function of a name and of a folder, which holds the compiled programs, finds in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_dump_to={folder}/programs --xla_dump_hlo_as_text"
        found = called(function, name, folder, one_core=True, XLA_FLAGS=flags, TIDELOG_CACHE="off")
    print(name, found, flush=True)
    return found


def trace(name: str, folder: str) -> dict[str, Any]:
    """Return the microseconds of an update, by what its operations do."""
    from benchmarks.speed import entry_of, synthetic_log, trainer_of

    entry, updates = entry_of(name), UPDATES.get(name, 1000)
    trainer = trainer_of(entry.algorithm, synthetic_log(entry.discrete), 1)
    parts: dict[str, float] = dict.fromkeys((*PARTS, OTHERS), 0.0)
    found = traced(trainer, updates, folder)
    for operation, microseconds, _ in found:
        parts[part_of(operation)] += microseconds
    total = sum(parts.values())
    shares = {part: round(one / total, 3) for part, one in parts.items()}
    microseconds = {part: round(one, 1) for part, one in parts.items()}
    return {"microseconds": microseconds, "operations": sum(count for *_, count in found), "shares": shares}


def traced(trainer: Any, updates: int, folder: str) -> list[tuple[str, float, int]]:
    """What a trainer's compiled operations do, and for each its microseconds and its runs an update.

    A run's time is the fifth that was fastest; operations that not every update has are left out, and those that run
    others.
    """
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(folder, profiler_options=options):
        trainer.advance(updates)
    operations, found = _operations(folder), []
    for operation, times in _durations(folder).items():
        if operation in operations and len(times) >= 0.9 * updates:
            count = round(len(times) / updates)
            found.append((operations[operation], float(np.quantile(times, 0.2)) * count, count))
    return found


def part_of(operation: str) -> str:
    """Which part of an update an operation belongs to."""
    return next((part for part, words in PARTS.items() if words.search(operation)), OTHERS)


def _durations(folder: str) -> dict[str, list[float]]:
    """Microseconds of each run of each compiled operation."""
    (file,) = glob.glob(f"{folder}/**/*.trace.json.gz", recursive=True)
    durations = collections.defaultdict(list)
    with gzip.open(file) as stream:
        for event in json.load(stream)["traceEvents"]:
            if event.get("ph") == "X":
                durations[event["name"]].append(event["dur"])
    return durations


def _operations(folder: str) -> dict[str, str]:
    """The operations of the largest compiled program, of one result or several: opcode, and place in the source."""
    programs = glob.glob(f"{folder}/programs/*after_optimizations.txt")
    text = Path(max(programs, key=os.path.getsize)).read_text()
    line = r'^\s*(?:ROOT )?%?([\w.\-]+) = (?:\([^()]*\)|\S+) ([\w\-]+)\(.*?metadata=\{op_name="([^"]*)"'
    found = re.findall(line, text, re.MULTILINE)
    return {name: f"{opcode} {place}" for name, opcode, place in found if opcode not in CONTAINERS}


def rate(name: str) -> float:
    """Return the updates per processor second, of the fastest of some slices, on one core."""
    import time

    from benchmarks.speed import entry_of, synthetic_log, trainer_of

    entry = entry_of(name)
    trainer = trainer_of(entry.algorithm, synthetic_log(entry.discrete), 1)
    fastest = 0.0
    for _ in range(SLICES):
        begin, updates = time.process_time(), UPDATES.get(name, 1000) // 3
        trainer.advance(updates)
        fastest = max(fastest, updates / (time.process_time() - begin))
    return fastest
