"""Events a second in training recommender BCQ on a catalogue of 100,000 items, where cross-entropy takes a sample.

Random walks over the catalogue, by popularity; both phases alone, the default settings but for what `SETTINGS` says.
What is counted are events that an update learns from, not those that it only reads. The part `users` measures the
update with a vector for each of 10,000 to 1,000,000 users, in turns, over a catalogue small enough not to matter.

`python -m benchmarks recommender_speed --parts users` measures one part and keeps the others as they are.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

import tidelog as tl
from benchmarks.keep import keep, known
from benchmarks.spread import peak_memory
from tidelog.training.engine import Engine
from tidelog.training.loop import as_members
from tidelog.training.record import this_machine
from tidelog.training.splits import TimeSplit

COMMAND = "python -m benchmarks recommender_speed"
ITEMS, USERS, EVENTS, REPEATS, SECONDS = 100_000, 10_000, 50, 3, 8.0
UPDATES = 10  # of one call: a training makes many at once
SETTINGS: dict[str, Any] = {"history": 50, "targets": 10, "batch_size": 128, "sampled_items": 1_024}
PHASES = {"table and reader alone": {"pretrain_share": 1.0}, "everything": {"pretrain_share": 0.0}}
COUNTS, OF_EACH, FEW_ITEMS, TURNS, TURN = (10_000, 100_000, 1_000_000), 10, 2_000, 5, 3.0
WITH_USERS = {**SETTINGS, "pretrain_share": 1.0, "user_embedding": True}


def walks(items: int = ITEMS, users: int = USERS, events: int = EVENTS) -> Any:
    """Users with some events each; items by a power of their place."""
    generator = np.random.default_rng(0)
    item = np.minimum(items * generator.random(users * events) ** 3, items - 1).astype(np.int64)
    item[:items] = np.arange(items)  # all of them exist
    event = np.arange(users * events)
    frame = pl.DataFrame({"user": event % users, "item": item, "time": event, "worth": generator.random(len(event))})
    return tl.read_interactions(frame, user="user", item="item", time="time", reward="worth")


def trainer_of(algorithm: tl.RecommenderBCQ, log: Any) -> Engine:
    """Return a compiled trainer on the whole log."""
    parts = TimeSplit(log, 0.0)
    stores = parts.stores(algorithm, parts.scaler(False, None))
    trainer = Engine.fresh(as_members([algorithm], [0]), algorithm.spec_of(log), stores, 10**9)
    trainer.compile()
    return trainer


def measure(log: Any, **settings: Any) -> dict[str, Any]:
    """Updates and events a second of one phase, the median of `REPEATS`, and the most anonymous memory meanwhile."""
    algorithm = tl.RecommenderBCQ(**(SETTINGS | settings))
    trainer = trainer_of(algorithm, log)
    with peak_memory(0.05) as peak:
        trainer.advance(UPDATES)
        rates = [_rate(trainer, SECONDS) for _ in range(REPEATS)]
    events = algorithm.batch_size * algorithm.targets  # every user has a multiple of `targets` events
    each = [events * rate for rate in rates]
    return {"updates": statistics.median(rates), "events": statistics.median(each), "least": min(each),
            "most": max(each), "memory": peak[0]}  # fmt: skip


def _rate(trainer: Engine, seconds: float) -> float:
    begin, taken = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        taken += trainer.advance(UPDATES)
    return taken / (time.perf_counter() - begin)


def phases() -> dict[str, Any]:
    """Both phases on the large catalogue."""
    log = walks()
    found = {name: measure(log, **settings) for name, settings in PHASES.items()}
    return {"items": ITEMS, "log": len(log), "settings": SETTINGS, "phases": found}


def users() -> dict[str, Any]:
    """Milliseconds of an update by the number of users that have a vector, in turns; and without such vectors."""
    cases = {"none": (min(COUNTS), False), **{f"{count}": (count, True) for count in COUNTS}}
    trainers = {}
    for name, (count, embedded) in cases.items():
        algorithm = tl.RecommenderBCQ(**{**WITH_USERS, "user_embedding": embedded})
        trainers[name] = trainer_of(algorithm, walks(FEW_ITEMS, count, OF_EACH))
        trainers[name].advance(20)
    turns = [
        {name: 1e3 / _rate(trainers[name], TURN) for name in list(trainers)[:: 1 if turn % 2 else -1]}
        for turn in range(TURNS)
    ]
    found = {
        name: {
            "milliseconds": statistics.median(turn[name] for turn in turns),
            "least": min(turn[name] for turn in turns),
            "most": max(turn[name] for turn in turns),
            "over_fewest": statistics.median(turn[name] / turn[f"{min(COUNTS)}"] for turn in turns),
        }
        for name in trainers
    }
    return {"users": {"items": FEW_ITEMS, "events_of_each": OF_EACH, "turns": TURNS, "found": found}}


PARTS = {"phases": phases, "users": users}


def study(parts: Sequence[str] = tuple(PARTS)) -> None:
    """Measure these parts; others stay as they were kept, each with its machine."""
    before = known("recommender_speed")
    facts = {name: value for name, value in before.items() if name not in ("command", "machine")}
    facts["machines"] = {part: before["machine"] for part in PARTS if part in before} | before.get("machines", {})
    for part in parts:
        facts |= PARTS[part]()
        facts["machines"][part] = this_machine()
        print(part, facts, flush=True)
        keep("recommender_speed", COMMAND, facts)
