"""Events a second in training recommender BCQ on a catalogue of 100,000 items, where cross-entropy takes a sample.

Random walks over the catalogue, by popularity; both phases alone, the default settings but for what `SETTINGS` says.
What is counted are events that an update learns from, not those that it only reads.
"""

import statistics
import threading
import time
from typing import Any

import numpy as np
import polars as pl

import tidelog as tl
from benchmarks.door_size import anonymous
from benchmarks.keep import keep
from tidelog.training.engine.engine import Engine
from tidelog.training.engine.members import as_members
from tidelog.training.runs.time_split import TimeSplit

COMMAND = "python -m benchmarks.recommender_speed"
ITEMS, USERS, EVENTS, REPEATS, SECONDS = 100_000, 10_000, 50, 3, 8.0
SETTINGS: dict[str, Any] = {"history": 50, "targets": 10, "batch_size": 128, "sampled_items": 1_024}
PHASES = {"table and reader alone": {"pretrain_share": 1.0}, "everything": {"pretrain_share": 0.0}}


def walks() -> Any:
    """10,000 users with 50 events each; items by a power of their place."""
    generator = np.random.default_rng(0)
    item = np.minimum(ITEMS * generator.random(USERS * EVENTS) ** 3, ITEMS - 1).astype(np.int64)
    item[:ITEMS] = np.arange(ITEMS)  # all of them exist
    event = np.arange(USERS * EVENTS)
    frame = pl.DataFrame({"user": event % USERS, "item": item, "time": event, "worth": generator.random(len(event))})
    return tl.read_interactions(frame, user="user", item="item", time="time", reward="worth")


def measure(log: Any, **settings: Any) -> dict[str, Any]:
    """Updates and events a second of one phase, the median of `REPEATS`, and the most anonymous memory meanwhile."""
    algorithm = tl.RecommenderBCQ(**(SETTINGS | settings))
    parts = TimeSplit(log, 0.0)
    trainer = Engine.fresh(
        as_members([algorithm], [0]), log.spec, parts.stores(algorithm, parts.scaler(False, None)), 10**9
    )
    trainer.compile()
    peak, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    trainer.advance(2)
    rates = [_rate(trainer) for _ in range(REPEATS)]
    done.set()
    watcher.join()
    events = algorithm.batch_size * algorithm.targets  # every user has a multiple of `targets` events
    each = [events * rate for rate in rates]
    return {"updates": statistics.median(rates), "events": statistics.median(each), "least": min(each),
            "most": max(each), "memory": peak[0]}  # fmt: skip


def _rate(trainer: Engine) -> float:
    begin, taken = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        taken += trainer.advance(2)
    return taken / (time.perf_counter() - begin)


if __name__ == "__main__":
    log = walks()
    found = {name: measure(log, **settings) for name, settings in PHASES.items()}
    print(found)
    keep("recommender_speed", COMMAND, {"items": ITEMS, "log": len(log), "settings": SETTINGS, "phases": found})
