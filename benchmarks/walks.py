"""How far data walk: the files of tidelog in which a function runs while a log is read, learnt from and judged.

`python -m benchmarks walks`: each call is made twice, and the second one is traced, so that what runs once on import
does not count. A file counts when one of its functions is called.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import tidelog as tl
from tidelog import runtime
from tidelog.serving.app import ActEndpoint, Answer

ROOT = str(Path(tl.__file__).parent)
COLUMNS = tl.Columns(
    episode="episode", step="step", observation=["x", "y"], action="action", reward="reward", terminated="terminated"
)


def trace(call: Callable[[], Any]) -> Counter[str]:
    """How many functions of each file ran."""
    functions: set[tuple[str, str]] = set()

    def watch(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            functions.add((code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname))

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Counter(file for file, _ in sorted(functions))


def walks(folder: Path) -> dict[str, Counter[str]]:
    """The walks of a table, of training, of a verdict, and of a body by HTTP."""
    random, rows = np.random.default_rng(0), 900
    columns: dict[str, Any] = {"episode": np.arange(rows) // 3, "step": np.arange(rows) % 3}
    columns |= {name: random.normal(size=rows) for name in ("x", "y", "reward")}
    columns |= {"action": random.choice(["a", "b"], rows), "terminated": np.arange(rows) % 3 == 2}
    pl.DataFrame(columns).write_csv(folder / "log.csv")

    def read() -> tl.Log:
        return tl.read_log(folder / "log.csv", COLUMNS)

    def fit() -> tl.Run:
        return tl.fit(tl.BC(hidden=(8,)), log, steps=5, progress=False)

    read()
    log = read()
    train, held_out = log.split(0.5, seed=0)
    log = train
    policy = fit().policy()
    tl.export(policy, folder / "policy")
    served = runtime.load(folder / "policy")
    assert isinstance(served, runtime.NumpyPolicy)
    endpoint = ActEndpoint(served, 100)

    def answer() -> Answer:
        return Answer(endpoint.compute(endpoint.read(b'{"observation": {"x": 0.5, "y": 1.0}}')))

    calls: dict[str, Callable[[], Any]] = {
        "read_log": read,
        "fit": fit,
        "judge": lambda: tl.judge(policy, held_out, ledger=False, progress=False),
        "POST /act": answer,
    }
    calls["judge"]()
    answer()
    return {name: trace(call) for name, call in calls.items()}


def study() -> None:
    """Print the files of each walk."""
    with tempfile.TemporaryDirectory() as name:
        for walk, files in walks(Path(name)).items():
            print(f"{walk}: {len(files)} files")
            print("  " + ", ".join(f"{file} {count}" for file, count in files.items()))
