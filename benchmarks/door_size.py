"""How long and how large: a Parquet log of ten million rows and twenty columns becomes a checked log.

The file is written in chunks and read in a process of its own, whose anonymous memory (RssAnon) is sampled every
20 ms; the page cache is the system's and does not count. The ratio is that peak to the sum of the log's arrays.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.keep import keep
from benchmarks.spread import called, peak_memory

ROWS, CHUNK, LENGTH, FEATURES = 10_000_000, 500_000, 200, 14
COMMAND = "python -m benchmarks door_size"
MAPPING = {
    "episode": "episode", "step": "step", "observation": [f"o{place}" for place in range(FEATURES)], "action": "action",
    "actions": 8, "reward": "reward", "terminated": "terminated", "propensity": "propensity",
}  # fmt: skip


def chunk(start: int, rows: int) -> pl.DataFrame:
    """Rows from `start`: episodes of 200 steps, features and reward as doubles, as most tools write them."""
    rng = np.random.default_rng(start)
    row = np.arange(start, start + rows)
    return pl.DataFrame(
        {
            "episode": row // LENGTH, "step": row % LENGTH, "action": rng.integers(0, 8, rows),
            "reward": rng.normal(size=rows), "terminated": row % LENGTH == LENGTH - 1,
            "propensity": rng.uniform(0.01, 1, rows),
        }
        | {f"o{place}": rng.normal(size=rows) for place in range(FEATURES)}
    )  # fmt: skip


def write(path: Path, rows: int) -> None:
    """One file, its chunks streamed from files of their own."""
    folder = path.parent / "chunks"
    folder.mkdir()
    for start in range(0, rows, CHUNK):
        chunk(start, min(CHUNK, rows - start)).write_parquet(folder / f"{start:012d}.parquet")
    pl.scan_parquet(folder / "*.parquet").sink_parquet(path)


def measure(path: str) -> dict:
    """Read the file once; seconds, peak, what stood before, and the size of the log."""
    import tidelog as tl

    with peak_memory(0.02) as peak:
        began, before = time.perf_counter(), peak[0]
        log = tl.read_log(path, MAPPING)
        seconds = time.perf_counter() - began
    size = sum(values.nbytes for values in log.columns().values())
    found = {"seconds": seconds, "peak": peak[0], "before": before, "log": size, "ratio": peak[0] / size}
    return {**found, "steps": log.steps, "episodes": len(log.episodes)}


def study(rows: int = ROWS) -> dict:
    """Write, read in a process of its own, and keep what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write(path, rows)
        found = {"rows": rows, "columns": FEATURES + 6, "file": path.stat().st_size, **called(measure, str(path))}
    if rows == ROWS:
        keep("door_size", COMMAND, found)
    return found
