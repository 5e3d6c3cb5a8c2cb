"""Seconds from the start of a command to what a user waits for, and microseconds of a decision in a process.

`python -m benchmarks start [--repeats 7]`. A bare start is Python, JAX and one compiled product. All commands take
turns; modules are compiled to bytecode before, as an installation does it. Cold is an empty cache of compiled programs.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from timeit import repeat

import numpy as np

import tidelog as tl
from benchmarks.guard import _table
from benchmarks.keep import keep
from tidelog import runtime

BARE = "import jax, jax.numpy as jnp; jax.jit(lambda x: x @ x)(jnp.ones((64, 64))).block_until_ready()"
PATIENTS, CASES = 167, 1_000  # a patient has six rows
MICROSECONDS = 10.0  # the goal of a decision
GOALS = {  # seconds; of the first three above a bare start
    "train, cold": 2.0,
    "train, warm": 1.0,
    "judge": 1.5,
    "--help": 0.05,
    "act": 0.3,
}


def seconds(words: list[str], folder: Path, cache: str = "cache", until: str | None = None) -> float:
    """The time of a process, or until it prints a line with these words."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "TIDELOG_CACHE": str(folder / cache)}
    begin, taken = time.perf_counter(), None
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=kept | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            if until and until in line and taken is None:
                taken = time.perf_counter() - begin
    if process.returncode or (until and taken is None):
        raise RuntimeError(f"{' '.join(words)}:\n{''.join(lines[-20:])}")
    return time.perf_counter() - begin if taken is None else taken


def microseconds_of_a_decision(folder: Path) -> float:
    """The shortest time of one decision by `act` of an exported policy, over 20 times 1,000."""
    policy, row = runtime.load(folder / "policy"), np.zeros(3, np.float32)
    return min(repeat(lambda: policy.act(row), number=1_000, repeat=20)) * 1e3


def cases(seed: int) -> tl.Log:
    """A log of one-step cases of five kinds, with a choice of three actions."""
    random = np.random.default_rng(seed)
    kind, action = random.integers(0, 5, CASES), random.integers(0, 3, CASES)
    reward = (random.random(CASES) < 0.3 + 0.1 * (kind % 3 == action)).astype(np.float32)
    return tl.Log.from_arrays(observation=kind.astype(np.float32), action=action, reward=reward, terminated=True)


def turn(folder: Path, number: int) -> dict[str, float]:
    """Every command once; the verdict is on one-step cases that a table of values has."""
    command, table = ["-m", "tidelog"], ["--data", f"visits-{PATIENTS}.csv"]
    train = [*command, "train", "iql", *table, "--columns", "columns.toml", "--steps", "100", "--out", "run"]
    train += ["--overwrite", "--no-judge"]  # a verdict is another row
    act = [*command, "act", "policy", *table, "--out", "actions.csv", "--overwrite"]
    judge = [*command, "judge", "clone", "--sample", "--data", "cases", "--ledger", "off"]
    found = {"a bare start": seconds(["-c", BARE], folder), "--help": seconds([*command, "--help"], folder)}
    for cache in ("cold", "warm"):
        found[f"train, {cache}"] = seconds(train, folder, f"cache-{number}", "last metrics")
    if not (folder / "policy").exists():
        seconds([*command, "export", "run", "--out", "policy", "--no-onnx"], folder)
    found |= {"judge": seconds(judge, folder), "act": seconds(act, folder)}
    return found


def study(repeats: int = 7) -> None:
    """Measure, and keep what was measured."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _table(folder, PATIENTS)
        logs = [cases(seed) for seed in range(2)]
        logs[1].save(folder / "cases")
        tl.fit(tl.BC(), logs[0], 200, progress=False).policy().save(folder / "clone")
        turn(folder, 0)  # writes the bytecode, compiles what a verdict needs
        turns = []
        for number in range(1, repeats + 1):
            turns.append(turn(folder, number))
            print(turns[-1], flush=True)
        decision = microseconds_of_a_decision(folder)
    commands = {name: [one[name] for one in turns] for name in turns[0]}
    facts = {"repeats": repeats, "rows": PATIENTS * 6, "cases": CASES, "goals": GOALS}
    facts |= {"microseconds_of_a_decision": decision, "goal_of_a_decision": MICROSECONDS}
    print(keep("start", f"python -m benchmarks start --repeats {repeats}", facts | {"commands": commands}))
