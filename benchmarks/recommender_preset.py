"""The default training of a recommender against the one before it, on customers of Online Retail: ndcg and time.

Before: about 10 passes over the events, 50 reports with 64 batches of validation each, and the last policy. Now: at
most as many updates, 20 reports with 8 batches each; half of the held-out users stop the training and keep its best
report. Both begin with the same seeds and read the same events. NDCG@10 is that of the first held-out baskets of the
other half of the users, who choose nothing now; before, they helped to choose the weight of Q (it was 0 with all five
seeds). Intervals are over seeds, for these users. The rule was not chosen on this log: 20 reports follow from the cost
of a report on Entree; a wait of three was not tuned. Times are seconds of processor, because machines are shared;
those before were measured with the code of that time, commit 08d1448b, whose every choice `before` repeats.

Command: `python -m benchmarks.recommender_preset [SEEDS]`; five seeds by default. Kept ones are not computed again.
"""

import sys
import time
from typing import Any

import numpy as np
import polars as pl

import tidelog as tl
from benchmarks import online_retail
from benchmarks.keep import RESULTS, SHARED, keep, kept, seed_interval
from benchmarks.recommender import interactions
from tidelog.recommend.evaluate import compare
from tidelog.recommend.interactions import next_baskets, split_users
from tidelog.training import loop as validation

NAME, COMMAND = "recommender_preset", "python -m benchmarks.recommender_preset {}"
CUSTOMERS, HELD_OUT, SEEDS, K = 600, 0.2, 5, 10
BEFORE, NOW = "before", "now"


def customers() -> Any:
    """The purchases of a random sample of customers."""
    frame = online_retail.read(SHARED / "data/online_retail_cc0/online_retail_2010_2011.parquet")
    users = np.sort(frame["user"].unique().to_numpy())
    sample = np.random.default_rng(0).permutation(users)[:CUSTOMERS]
    return interactions(frame.filter(pl.col("user").is_in(sample.tolist())))


def trained(log: Any, arm: str, seed: int) -> dict[str, Any]:
    """The measures of one training."""
    found = tl.suggest(tl.RecommenderBCQ, log, held_out=HELD_OUT)
    options: dict[str, Any] = {"held_out": HELD_OUT, "seeds": [seed], "progress": False}
    options |= {"every": max(50, found.steps // 50)} if arm == BEFORE else found.options
    validation.MOST_OF_INTERACTIONS = 64 if arm == BEFORE else 8
    began, processor = time.monotonic(), time.process_time()
    run = tl.fit(found.algorithm, log, found.steps, **options)
    spent = time.process_time() - processor
    policy = run.policy() if arm == BEFORE else run.best_policy()
    split = log.split(share=HELD_OUT)
    reported = split_users(split.test, 0.5)[1]
    cases = next_baskets(reported, reported.targets)
    ndcg = compare({arm: policy.ranker()}, cases, split.train.counts, K).row(arm).scores["ndcg"].estimate
    row = {"arm": arm, "seed": seed, "ndcg": ndcg, "updates": run.update, "processor_seconds": spent}
    print(row | {"cases": len(cases), "seconds": time.monotonic() - began}, flush=True)
    return row


def main(seeds: int) -> None:
    """Train what is not kept yet, and keep the rows and the differences over seeds."""
    path, log = RESULTS / f"{NAME}.json", customers()
    rows = kept(NAME)["rows"] if path.exists() else []
    for seed in range(seeds):
        for arm in (NOW, BEFORE):
            if not any((row["arm"], row["seed"]) == (arm, seed) for row in rows):
                rows.append(trained(log, arm, seed))
                keep(NAME, COMMAND.format(seeds), facts(log, rows), rows=rows)


def facts(log: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is the same for all rows, and the differences of the seeds that have both, with intervals from three on."""
    found = {(row["arm"], row["seed"]): row for row in rows}
    both = [seed for arm, seed in found if arm == NOW and (BEFORE, seed) in found]
    differences = {}
    for name in ("ndcg", "processor_seconds"):
        each = [found[NOW, seed][name] - found[BEFORE, seed][name] for seed in both]
        differences[name] = list(seed_interval(each)) if len(each) > 2 else each
    return {"k": K, "customers": CUSTOMERS, "events": len(log), "seeds": both, "now_minus_before": differences}


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS)
