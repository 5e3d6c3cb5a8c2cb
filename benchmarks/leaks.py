"""How often a column that is known before the decision looks like an outcome, and how often an outcome does.

Columns that are known before: flags whose odds ratio with the reward is 1 to 200, words whose levels have log-odds with
a standard deviation of 1, numbers that the reward shifts by 1 standard deviation or by 2.3 (areas under the curve of
0.76 and 0.95), these with 70% zeros, and the 180 columns of four real logs of clicks (Open Bandit Dataset), if they are
here. Outcomes: a visit before each conversion, the money that a conversion brings, and the reward in another unit, in
logs of 300 to 30,000 rows with 1% of conversions.
`python -m benchmarks.leaks`
"""

import gzip
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

import tidelog as tl
from benchmarks.keep import SHARED, keep
from tidelog.data.leaks import DecisionRewards, leak_of

COMMAND = "python -m benchmarks.leaks"
ROWS, SHARES, AGAIN = (50, 200, 1_000, 6_000), (0.003, 0.01, 0.05, 0.2, 0.5), 200

Logs = Iterator[tuple[str, np.ndarray, np.ndarray]]  # kind of the column, column, rewards


def flags(generator: np.random.Generator, rows: int, base: float) -> Logs:
    """Flags with several odds ratios, of 2 to 50% of the rows."""
    for ratio in (1, 5, 20, 50, 200):
        column = generator.random(rows) < generator.choice([0.02, 0.1, 0.3, 0.5])
        odds = base / (1.0 - base) * np.where(column, ratio, 1.0)
        flipped = column if generator.random() < 0.5 else ~column
        yield f"flag, odds ratio {ratio}", flipped, generator.random(rows) < odds / (1.0 + odds)


def words(generator: np.random.Generator, rows: int, base: float) -> Logs:
    """Words with few and with many levels."""
    for levels in (2, 5, 20, rows // 3):
        codes = generator.integers(0, levels, rows)
        logit = np.log(base / (1.0 - base)) + generator.standard_normal(levels)[codes]
        name = f"{levels} words" if levels != rows // 3 else "a word for 3 rows"
        yield name, codes, generator.random(rows) < 1.0 / (1.0 + np.exp(-logit))


def numbers(generator: np.random.Generator, rows: int, base: float) -> Logs:
    """Numbers that the reward shifts, also with many zeros."""
    for shift, area in ((1.0, 0.76), (2.3, 0.95)):
        reward = generator.random(rows) < base
        column = generator.standard_normal(rows) + shift * reward
        yield f"number, area {area}", column, reward
        yield f"number with zeros, area {area}", np.where(generator.random(rows) < 0.7, 0.0, np.exp(column)), reward


def outcomes(generator: np.random.Generator, rows: int) -> Logs:
    """Columns that follow the decision."""
    visit = generator.random(rows) < 0.15
    reward = visit & (generator.random(rows) < 0.01 / 0.15)
    yield "outcome: a visit", visit, reward
    yield "outcome: money", np.where(reward, generator.exponential(100.0, rows) + 1.0, 0.0), reward
    score = generator.standard_normal(rows)
    yield "outcome: another unit", 2.0 - 3.0 * score, score


def clicks() -> dict[str, int]:
    """Columns of real logs of clicks, and how many of them look like outcomes."""
    columns = named = 0
    for path in sorted((SHARED / "data/obd_small").glob("*/*/*men.csv.gz")):
        table = pl.read_csv(gzip.decompress(path.read_bytes()))
        observed = [name for name in table.columns if name.startswith("user") or name == "position"]
        mapping = tl.Columns(action="item_id", reward="click", propensity="propensity_score", terminated=True,
                             observation=observed, categorical=observed)  # fmt: skip
        report = tl.read_log(table, mapping).report
        columns += len(observed)
        named += sum(one.check == "outcome among observations" for one in report.warnings)
    return {"columns": columns, "named": named}


def study() -> dict[str, Any]:
    """Counts of columns that were named, of each kind."""
    generator, counts = np.random.default_rng(0), dict[str, list[int]]()

    def count(kind: str, column: np.ndarray, reward: np.ndarray) -> None:
        rewards = DecisionRewards.of(reward.astype(np.float32), generator.integers(0, 3, len(reward)), single=True)
        found = leak_of(column.astype(np.float32), rewards, words="word" in kind)
        old = counts.setdefault(kind, [0, 0])
        counts[kind] = [old[0] + (found is not None), old[1] + 1]

    for rows in ROWS:
        for base in SHARES:
            for _ in range(AGAIN):
                for make in (flags, words, numbers):
                    for one in make(generator, rows, base):
                        count(*one)
    for rows in (300, 1_000, 3_000, 10_000, 30_000):
        for _ in range(AGAIN):
            for kind, column, reward in outcomes(generator, rows):
                count(f"{kind}, {rows:,} rows", column, reward)
    return {"named of columns": counts, "real logs of clicks": clicks()}


if __name__ == "__main__":
    result = study()
    for kind, (named, columns) in result["named of columns"].items():
        print(f"{kind:32} {named:>6,} of {columns:,}")
    print(result["real logs of clicks"])
    keep("leaks", COMMAND, result)
