"""Counted successors in a large catalogue: short trainings with and without them, where counts tell much or nothing.

`groups` is the log of `benchmarks/recommender_size.py`: the next item is of the same group of 50 seven times in ten.
`independent` has no order at all: every event is drawn by popularity, so counts of what followed are noise. Each seed
has its own log; the last tenth of its time is held out. A gain is the mean over seeds of the difference between the
trainings with and without counts, with a 95% interval over seeds.

`python -m benchmarks.recommender_successors [--events 1000000] [--steps 600]`
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.recommender_size import walks
from tidelog.recommend.evaluate import Markov, Popularity, compare
from tidelog.recommend.interactions import next_events

COMMAND = "python -m benchmarks.recommender_successors"
SEEDS, CASES, K = 5, 4_000, 10
READERS = {"counted": {}, "without counts": {"successors": 0}}
MEASURES = ("hit rate", "ndcg", "mrr")


def independent(events: int, seed: int) -> pl.DataFrame:
    """Events of users who draw items by popularity alone."""
    dice = np.random.default_rng(seed)
    user = np.sort(dice.integers(0, events // 10, events))
    item = (events // 50 * dice.random(events) ** 3).astype(np.int64)
    return pl.DataFrame({"user": user, "item": item, "time": 365 * dice.random(events)})


LOGS: dict[str, Callable[[int, int], pl.DataFrame]] = {"groups": walks, "independent": independent}


def seed_scores(name: str, events: int, steps: int, seed: int) -> dict[str, dict[str, float]]:
    """The measures of both trainings and of the rules on held-out events, and the processor seconds of a training."""
    log = tl.read_interactions(LOGS[name](events, seed), user="user", item="item", time="time")
    split = log.split(share=0.1)
    drawn = np.random.default_rng(seed).choice(split.test.targets, CASES, replace=False)
    cases, popularity = next_events(log, np.sort(drawn)), Popularity.of(split.train)
    rankers: dict[str, Any] = {"popularity": popularity, "last-item Markov": Markov.of(split.train)}
    seconds = {}
    for reader, settings in READERS.items():  # full_softmax=0: as in a catalogue of any size
        algorithm = tl.RecommenderBCQ(pretrain_share=1.0, full_softmax=0, **settings)
        begun = time.process_time()
        run = tl.fit(algorithm, split.train, steps=steps, seeds=[seed], every=steps, progress=False)
        seconds[reader] = time.process_time() - begun
        rankers[reader] = run.policy().ranker()
    found = compare(rankers, cases, popularity.counts, K)
    scores = {
        ranker: {measure: found.row(ranker).scores[measure].estimate for measure in MEASURES} for ranker in rankers
    }
    for reader, taken in seconds.items():
        scores[reader]["seconds"] = taken
    print(name, seed, scores, flush=True)
    return scores


def study(name: str, events: int, steps: int) -> list[dict[str, Any]]:
    """The rows of one log: means over seeds, and the gains of counts."""
    each = [seed_scores(name, events, steps, seed) for seed in range(SEEDS)]
    rows = [
        {
            "log": name,
            "ranker": ranker,
            "measure": measure,
            "mean": list(seed_interval([one[ranker][measure] for one in each])),
        }
        for ranker in each[0]
        for measure in each[0][ranker]
    ]
    for over in ("without counts", "last-item Markov"):
        for measure in MEASURES:
            gain = seed_interval([one["counted"][measure] - one[over][measure] for one in each])
            rows.append({"log": name, "over": over, "measure": measure, "gain": list(gain)})
            print(f"{name}, counted minus {over}, {measure}: {gain}", flush=True)
    return rows


def main() -> None:
    """Run both logs, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=600)
    asked = parser.parse_args()
    rows = [row for name in LOGS for row in study(name, asked.events, asked.steps)]
    facts = {"events": asked.events, "steps": asked.steps, "seeds": SEEDS, "cases": CASES, "k": K}
    keep("recommender_successors", COMMAND, facts, rows=rows)


if __name__ == "__main__":
    main()
