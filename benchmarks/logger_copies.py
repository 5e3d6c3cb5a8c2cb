"""A network's copy of Open Bandit's even logger: is it worse, as the judge says on some halves of the log?

The logger shows items at random, so a copy of it that was learnt on one half earns the same as it on the other half, up
to what the copy's errors have to do with clicks. Each half has some 25 clicks. Two things are counted:

- clicks in random order, where the true difference is 0: how often the deciding interval is on one side of 0;
- the clicks' mean weight over the halves of many splits, in the real order and in random ones. All halves share the
  same clicks, so one order is one piece of evidence, however many of its halves are judged.

`python -m benchmarks.logger_copies` (it reads the logs below `TIDELOG_SHARED`).
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import tidelog as tl
from benchmarks.keep import SHARED, keep
from tidelog.ope.decide import Case, Reuse
from tidelog.ope.evidence import Evidence
from tidelog.ope.verdict import Limits

COMMAND = "python -m benchmarks.logger_copies"
CAMPAIGNS = ("men", "women")
SPLITS, ORDERS_OF_A_SPLIT, ORDERS = 30, 10, 2_000
MAPPING = """
time = "timestamp"
reward = "click"
propensity = "propensity_score"
terminated = true
action = "item_id"
actions = {actions}
observation = {observation}
categorical = {users}
"""


def read(campaign: str) -> tl.Log:
    """The even logger's decisions of a campaign."""
    file = SHARED / f"data/obd_small/random/{campaign}/{campaign}.csv.gz"
    table = pl.read_csv(file)
    users = [name for name in table.columns if name.startswith("user_feature")]
    observation = users + [name for name in table.columns if name.startswith("user-item_affinity")]
    items = int(table["item_id"].to_numpy().max()) + 1
    with TemporaryDirectory() as folder:
        mapping = Path(folder) / "columns.toml"
        mapping.write_text(MAPPING.format(actions=items, observation=observation, users=users).replace("'", '"'))
        return tl.read_log(file, mapping)


def weights_of_halves(log: tl.Log) -> np.ndarray:
    """The normalised weight of each decision under the copies of the logger [S, R]; NaN in the half that was learnt."""
    weights = np.full((SPLITS, log.steps), np.nan)
    for seed in range(SPLITS):
        learnt, judged = log.split(0.5, seed=seed)
        suggested = tl.suggest(tl.BC, learnt)
        policy = tl.fit(suggested.algorithm, learnt, suggested.steps, progress=False).policy()
        action = np.asarray(judged.action)
        target = np.asarray(policy.probabilities(dict(judged.observation)))[np.arange(len(action)), action]
        rows = np.searchsorted(log.episode_ids, judged.episode_ids)
        weights[seed, rows] = target / np.asarray(judged.propensity)
    return weights / np.nanmean(weights, axis=1, keepdims=True)


def judged_side(weights: np.ndarray, reward: np.ndarray) -> str:
    """The side of 0 on which the deciding interval of a half lies, before any limit on support."""
    mean = np.full(len(reward), reward.mean())
    even = np.full(len(reward), 0.01)
    evidence = Evidence(np.arange(len(reward) + 1), reward, 0.01 * weights, even, model=mean, model_target=mean)
    ends = Case(evidence, None, Reuse(None, None, None), Limits()).difference("wdr")
    return "better" if ends.low > 0 else "worse" if ends.high < 0 else "no difference"


def counted(log: tl.Log) -> dict[str, Any]:
    """Sides of the intervals in the real order and in random ones, and the mean weight of clicks over all halves."""
    weights, reward, generator = weights_of_halves(log), np.asarray(log.reward, float), np.random.default_rng(0)
    sides = {order: dict.fromkeys(("better", "worse", "no difference"), 0) for order in ("real order", "random orders")}
    for one in weights:
        there = np.isfinite(one)
        sides["real order"][judged_side(one[there], reward[there])] += 1
        for _ in range(ORDERS_OF_A_SPLIT):
            sides["random orders"][judged_side(one[there], generator.permutation(reward[there]))] += 1

    def mean_weight(clicks: np.ndarray) -> float:
        return float(np.mean(np.nanmean(weights[:, clicks], axis=1)))

    clicks = np.flatnonzero(reward)
    real = mean_weight(clicks)
    drawn = [mean_weight(generator.choice(len(reward), len(clicks), replace=False)) for _ in range(ORDERS)]
    return {
        "clicks": len(clicks),
        **sides,
        "mean weight of clicks": real,
        "in random orders": {"mean": float(np.mean(drawn)), "deviation": float(np.std(drawn))},
        "random orders as low": float(np.mean(np.asarray(drawn) <= real)),
    }


def main() -> None:
    """Count for each campaign, and keep it."""
    found = {campaign: counted(read(campaign)) for campaign in CAMPAIGNS}
    print(found)
    keep("logger_copies", COMMAND, {"splits": SPLITS, "orders": ORDERS, "campaigns": found})


if __name__ == "__main__":
    main()
