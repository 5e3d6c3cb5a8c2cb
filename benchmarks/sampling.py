"""What other ways of sampling cost an IQL update at paper size: prioritised, and from a log that stays on disk.

Rates are taken in turn within one process. The log on disk is trained on again in a process of its own, whose anonymous
memory (RssAnon) is sampled, warm and after its pages were dropped from the system's cache.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import tidelog as tl
from benchmarks.door_size import anonymous
from benchmarks.keep import keep
from tidelog.policies.policy import fingerprint
from tidelog.training.engine import Engine
from tidelog.training.loop import as_members
from tidelog.training.splits import EpisodeSplit

COMMAND = "python -m benchmarks.sampling"
ROWS, LARGE, REPEATS, SECONDS = 1_000_000, 10_000_000, 5, 4.0
CEILING = 1_000_000_000  # bytes of anonymous memory


def random_log(rows: int) -> tl.Log:
    """Random numbers, observation 17 and action 6, episodes of 1,000 steps that terminate."""
    generator, row = np.random.default_rng(0), np.arange(rows)
    return tl.Log.from_arrays(
        observation=generator.standard_normal((rows, 17), np.float32),
        action=generator.random((rows, 6), np.float32) * 2 - 1,
        reward=generator.standard_normal(rows, np.float32),
        terminated=row % 1_000 == 999,
        episode=row // 1_000,
        bounds=(-1.0, 1.0),
    )


def trainer_of(algorithm: tl.IQL, log: tl.Log) -> Engine:
    """A compiled trainer, one member."""
    parts = EpisodeSplit(log, 0.0, 0)
    stores = parts.stores(algorithm, parts.scaler(False, None))
    trainer = Engine.fresh(as_members([algorithm], [0]), log.spec, stores, 10**9)
    trainer.compile()
    trainer.advance(20)
    return trainer


def rate(trainer: Engine, seconds: float = SECONDS) -> float:
    """Updates a second."""
    begin, taken = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        taken += trainer.advance(500)
    return taken / (time.perf_counter() - begin)


def from_disk(path: str) -> dict:
    """Train on a log on disk in this process: rate, and the peak of anonymous memory."""
    peak, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    log = tl.open_log(path, memory_map=True)
    trainer = trainer_of(tl.IQL(), log)
    _forget(Path(path))
    cold = rate(trainer)
    _read_through(Path(path))
    warm = rate(trainer)
    done.set()
    watcher.join()
    size = sum(values.nbytes for values in log.columns().values())
    return {"log_bytes": size, "peak_bytes": peak[0], "ceiling_bytes": CEILING, "cold_rate": cold, "warm_rate": warm}


def _read_through(folder: Path) -> None:
    """Bring a log's pages into the system's cache."""
    for path in folder.glob("*.npy"):
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass


def _forget(folder: Path) -> None:
    """Drop a log's pages from the system's cache."""
    for file in folder.glob("*.npy"):
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def study() -> dict:
    """All of it, kept."""
    with tempfile.TemporaryDirectory() as folder:
        log = random_log(ROWS)
        log.save(Path(folder) / "log")
        mapped = tl.open_log(Path(folder) / "log", memory_map=True)
        trainers = {
            "uniform": trainer_of(tl.IQL(), log),
            "prioritised": trainer_of(tl.IQL(priority_exponent=0.6), log),
            "on disk": trainer_of(tl.IQL(), mapped),
        }
        rows = [{name: rate(trainer) for name, trainer in trainers.items()} for _ in range(REPEATS)]
        runs = [tl.fit(tl.IQL(), one, 600, every=600) for one in (log, mapped)]
        equal = fingerprint(runs[0].learners()) == fingerprint(runs[1].learners())
        del trainers, log, mapped
        random_log(LARGE).save(Path(folder) / "large")
        command = [sys.executable, "-m", "benchmarks.sampling", str(Path(folder) / "large")]
        large = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ratios = {
        "prioritised_share": [1 - row["prioritised"] / row["uniform"] for row in rows],
        "on_disk_over_memory": [row["on disk"] / row["uniform"] for row in rows],
    }
    found = {name: {"median": statistics.median(r), "min": min(r), "max": max(r)} for name, r in ratios.items()}
    content = {"rows": ROWS, "rates": rows, **found, "on_disk_equals_memory": equal, "large": {"rows": LARGE, **large}}
    keep("sampling", COMMAND, content)
    return content


if __name__ == "__main__":
    print(json.dumps(from_disk(sys.argv[1]) if len(sys.argv) > 1 else study()))
