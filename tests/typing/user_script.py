"""What a user writes, from a log to saved policies, in a file that is checked with every strict rule and also runs.

mypy --strict tests/typing/user_script.py
pyright tests/typing/user_script.py
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

import tidelog as tl
from tidelog import runtime
from tidelog.training.options import FitOptions

Row = Mapping[str, float | str]


class Shares:
    """A policy of the user: the same probabilities everywhere."""

    def __init__(self, shares: npt.NDArray[np.float64]) -> None:
        self.shares = shares

    def probabilities(
        self, observation: Mapping[str, npt.NDArray[np.float64]], mask: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[np.float64]:
        rows = len(next(iter(observation.values())))
        return np.tile(self.shares, (rows, 1))


def read(folder: Path) -> tl.Log:
    tl.collect("treatment", episodes=200, seed=0).to_parquet(folder / "visits.parquet")
    report = tl.check(folder / "visits.parquet", folder / "visits.toml")
    assert report.ok, report.text()
    log = tl.read_log(folder / "visits.parquet", folder / "visits.toml")
    features: pl.DataFrame = log.features()
    print(len(log), log.spec.action, log.spec.observation["numeric"], features.columns, log.statistics().lengths)
    log.save(folder / "visits.tidelog")
    reward = log.reward
    assert reward is not None
    print(float(reward.mean()))
    return tl.Log.load(folder / "visits.tidelog")


def train(log: tl.Log, folder: Path, steps: int) -> tuple[tl.Policy, tl.Log]:
    learnt, held_out = log.split(0.5, seed=0)
    algorithm = tl.IQL(temperature=3.0, discount=1.0, hidden=(16,))
    options: FitOptions = {"held_out": 0.2, "best_metric": "held_out/value_loss"}
    run: tl.Run = tl.fit(algorithm, learnt, steps, seeds=2, out=folder / "iql", progress=False, **options)
    print(run.name, run.update, [member.seed for member in run.members])
    again = tl.load_run(folder / "iql", learnt)
    algorithms = [tl.BC(hidden=(16,), learning_rate=rate) for rate in (1e-3, 1e-2)]
    population = tl.fit(algorithms, learnt, steps, progress=False)
    policies = [population.policy(member=member) for member in range(2)]
    print(again.update, len(policies), policies[0].spec.masked)
    return run.policy(seed=0), held_out


def judge(policy: tl.Policy, held_out: tl.Log, folder: Path) -> str:
    limits = tl.Limits(level=0.9, replicates=1_000)
    verdict = tl.judge(
        policy, held_out, sample=True, model="tabular", limits=limits, ledger=folder / "looks.jsonl", progress=False
    )
    low, high = verdict.difference.low, verdict.difference.high
    decision: str = verdict.decision
    print(decision, verdict.advice, verdict.paragraph, low, high, verdict.reasons[0])
    print(verdict.support.effective_sample_size, verdict.estimates["wdr"].interval.estimate)
    even = Shares(np.full(6, 1 / 6))
    verdicts = tl.judge({"learnt": policy, "even": even}, held_out, model="tabular", limits=limits, ledger=False)
    print(verdicts.advice, verdicts.better, verdicts.recommended, verdicts["even"].decision)
    estimates = tl.estimate(even, held_out, ["wis", "wdr"], model="tabular")
    print([(row.name, row.estimate, row.interval.low) for row in estimates], estimates["wis"].support.episodes)
    return decision


def act(policy: tl.Policy, held_out: tl.Log, folder: Path) -> None:
    observation = held_out.transitions.observation
    actions = policy(observation)
    row: Row = {"severity": 2.0, "strain": 0.0, "toxicity": 0.0, "hour": 0.0, "kidneys": "healthy"}
    print(actions, policy(row), policy.mode(row) if policy.acting is None else policy.sample(row, seed=1))
    chances = policy.probabilities(observation)
    print(chances.sum(axis=1).max(), policy.acting)
    path = policy.save(folder / "policy.zip")
    saved: tl.Policy = tl.load_policy(path)
    light = runtime.load(path)
    assert isinstance(light, runtime.NumpyPolicy)
    codes, _ = light.act(row)
    print(saved(row), light(row), int(codes))


def recommend(folder: Path, steps: int) -> None:
    random = np.random.default_rng(0)
    clicks = pl.DataFrame(
        {
            "user": random.integers(0, 60, 900),
            "item": random.integers(0, 20, 900).astype(str),
            "time": np.arange(900),
            "kind": random.choice(["shown", "clicked"], 900),
        }
    )
    log = tl.read_interactions(
        clicks, user="user", item="item", time="time", event="kind", reward={"shown": 0.0, "clicked": 1.0}
    )
    run = tl.fit(tl.RecommenderBCQ(history=5, targets=5, size=8), log, steps, progress=False)
    policy = run.policy()
    histories: list[list[str]] = [["3", "5"], []]
    lists = policy.recommend(histories, k=3)
    print(lists.items, lists.scores)
    policy.save(folder / "shop.zip")
    light = runtime.load(folder / "shop.zip")
    assert isinstance(light, runtime.Recommender)
    print(light.recommend(histories, k=3).items)


def main(folder: Path, steps: int = 20) -> str:
    try:
        log = read(folder)
    except tl.LogError as error:
        raise SystemExit(str(error)) from error
    policy, held_out = train(log, folder, steps)
    decision = judge(policy, held_out, folder)
    act(policy, held_out, folder)
    recommend(folder, steps)
    return decision


if __name__ == "__main__":
    main(Path())
