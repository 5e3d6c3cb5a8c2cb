"""From the start of a process to the end of 100 updates, with an empty and with a filled cache of compiled programs.

A bare start is Python, JAX and one compiled product, as in the goals: 2.2 bare starts cold, 1.1 warm. All commands take
turns. Modules are compiled to bytecode before, as an installation does it.

`python -m benchmarks start`
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import tidelog as tl
from benchmarks.keep import keep

COMMAND = "python -m benchmarks start"
BARE = "import jax, jax.numpy as jnp; jax.jit(lambda x: x @ x)(jnp.ones((64, 64))).block_until_ready()"
ENTRIES = ("iql", "bcq", "discrete-bcq")
ROWS, REPEATS = 1_000, 5
PHASES = """
import json, sys, time
now = time.time
marks, programs = {"begin": float(sys.argv[2])}, {"tracing": 0.0, "lowering": 0.0, "loading": 0.0, "count": 0}
EVENTS = {"jaxpr_trace_duration": "tracing", "jaxpr_to_mlir_module_duration": "lowering",
          "backend_compile_duration": "loading"}
def listen(event, seconds, **facts):
    name = EVENTS.get(event.split("/")[-1])
    if name:
        programs[name] += seconds
        programs["count"] += name == "loading"
marks["python"] = now()
import gc, jax
gc.freeze()
marks["jax"] = now()
jax.monitoring.register_event_duration_secs_listener(listen)
import tidelog as tl
from benchmarks.speed import entry_of, log_for
fit, algorithm = tl.fit, entry_of(sys.argv[1])
gc.freeze()
marks["tidelog"] = now()
log = log_for(algorithm)
marks["log"] = now()
run = fit(algorithm, log, 100, progress=False, train=False)
marks["run"], before = now(), dict(programs)
run.train(progress=False)
marks["done"] = now()
print(json.dumps({"marks": marks, "before": before, "programs": programs}))
"""


def seconds(words: list[str], folder: Path, cache: Path | None = None) -> float:
    """The time of a process."""
    begin = time.perf_counter()
    subprocess.run(words, cwd=folder, env=environment(folder, cache), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def environment(folder: Path, cache: Path | None) -> dict[str, str]:
    """The environment of a timed process: bytecode is kept, the device is the processor."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "TIDELOG_CACHE": str(cache or folder / "cache"),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[1]), *sys.path]),
    }


def phases(entry: str, folder: Path, cache: Path) -> dict[str, float]:
    """Milliseconds of the parts of a start with a filled cache, and the number of its programs."""
    words = [sys.executable, "-c", PHASES, entry, str(time.time())]
    process = subprocess.run(words, cwd=folder, env=environment(folder, cache), check=True, stdout=subprocess.PIPE)
    end, found = time.time(), json.loads(process.stdout)
    marks, before, programs = found["marks"], found["before"], found["programs"]
    later = {name: programs[name] - before[name] for name in ("tracing", "lowering", "loading")}
    parts = {
        "Python": marks["python"] - marks["begin"],
        "import of JAX": marks["jax"] - marks["python"],
        "import of tidelog, Equinox and Optax": marks["tidelog"] - marks["jax"],
        "the log": marks["log"] - marks["tidelog"],
        "tracing": programs["tracing"],
        "lowering to StableHLO": programs["lowering"],
        "reading compiled programs": programs["loading"],
        "the rest of a new run": marks["run"] - marks["log"] - sum(before[name] for name in later),
        "100 updates and their report": marks["done"] - marks["run"] - sum(later.values()),
        "end of the process": end - marks["done"],
    }
    return {name: 1e3 * value for name, value in parts.items()} | {"programs": programs["count"]}


def of_entry(entry: str, folder: Path) -> dict[str, Any]:
    """A start with an empty cache and one with a filled one, and the phases of another."""
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        words = [sys.executable, "-m", "benchmarks.first_updates", entry]
        cold, warm = (seconds(words, folder, Path(cache)) for _ in range(2))
        return {"cold": cold, "warm": warm, "phases": phases(entry, folder, Path(cache))}


def saved_policy(folder: Path) -> list[str]:
    """Write a policy and a table of rows, and return the command that answers them."""
    log = tl.collect("treatment", episodes=ROWS, seed=0)
    policy = tl.fit(tl.IQL(), log, 1, progress=False).policy()
    tl.export(policy, folder / "artefact")
    log.features()[:ROWS].write_csv(folder / "rows.csv")
    return ["act", "artefact", "--data", "rows.csv", "--out", "acts.csv", "--overwrite", "--quiet"]


def one_turn(folder: Path, act: list[str]) -> dict[str, Any]:
    """Every command once."""
    python, cli = [sys.executable, "-c"], [sys.executable, "-m", "tidelog"]
    turn = {
        "bare": seconds([*python, BARE], folder),
        "import jax": seconds([*python, "import jax"], folder),
        "import tidelog": seconds([*python, "import tidelog as tl; tl.fit, tl.IQL"], folder),
        "help": seconds([*cli, "--help"], folder),
        "act": seconds([*cli, *act], folder),
    }
    turn |= {entry: of_entry(entry, folder) for entry in ENTRIES}
    print({name: value for name, value in turn.items() if isinstance(value, float)}, turn["iql"], flush=True)
    return turn


def study(repeats: int = REPEATS) -> None:
    """Measure, and keep what was measured."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        act = saved_policy(folder)
        one_turn(folder, act)  # writes the bytecode
        turns = [one_turn(folder, act) for _ in range(repeats)]
    commands = {name: [turn[name] for turn in turns] for name in turns[0] if name not in ENTRIES}
    entries = {}
    for entry in ENTRIES:
        several = [turn[entry] for turn in turns]
        entries[entry] = {way: [one[way] for one in several] for way in ("cold", "warm")} | {
            f"{way}_over_bare": [one[way] / bare for one, bare in zip(several, commands["bare"], strict=True)]
            for way in ("cold", "warm")
        }
        names = several[0]["phases"]
        entries[entry]["phases"] = {name: median(one["phases"][name] for one in several) for name in names}
    keep("start", COMMAND, {"repeats": repeats, "rows": ROWS, "cores": os.cpu_count(), **commands, "entries": entries})
