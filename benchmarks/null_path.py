"""The default path on logs in which no action matters: how often its verdict recommends something, wrongly.

Eight kinds of logs in turn (`KINDS`), in which the reward depends on what was observed and never on an action: every
policy earns what the behaviour policy earned. Each goes through `tidelog train iql` as the command does it: settings
that follow the log, training, the choice among ways of acting and simple rules, the verdict on all of them at once.
Promised: at most the 97.5% binomial bound of logs in which anything is *better*, for a probability of 2.5%. *Better if
randomised* is counted apart.

`python -m benchmarks null_path [--logs 400] [--workers 2]`: some 5 seconds a log on one core; a stopped run goes on.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.stats import binom

import tidelog as tl
from benchmarks.default_path import default_path
from benchmarks.keep import keep
from benchmarks.spread import scratch, spread

NAME, COMMAND, FIRST_SEED = "null_path", "python -m benchmarks null_path", 70_000
Arrays = dict[str, Any]


def _numbers(generator: Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Four numbers as observation [N, 4], and a cause of rewards [N] between 0 and 1."""
    seen = generator.normal(size=(rows, 4)).astype(np.float32)
    return seen, 1.0 / (1.0 + np.exp(-seen[:, 0] + 0.5 * seen[:, 1] * seen[:, 2]))


def coin(generator: Generator) -> Arrays:
    """600 tosses between two actions, a reward of 0 or 1."""
    seen, cause = _numbers(generator, 600)
    return {"observation": seen, "action": generator.integers(2, size=600), "propensity": 0.5,
            "reward": generator.random(600) < cause}  # fmt: skip


def money(generator: Generator) -> Arrays:
    """1,500 decisions among three actions, declared by their shares; skewed amounts, words."""
    word = generator.choice(["north", "south", "east", "west"], size=1_500)
    amount = generator.gamma(0.5, 80.0, 1_500) * (1.0 + (word == "north"))
    return {"observation": {"region": word}, "action": generator.integers(3, size=1_500), "propensity": "shares",
            "reward": amount}  # fmt: skip


def uneven(generator: Generator) -> Arrays:
    """1,000 decisions, nine in ten the same one; the reward follows the observation closely."""
    seen, cause = _numbers(generator, 1_000)
    action = (generator.random(1_000) < 0.1).astype(int)
    return {"observation": seen, "action": action, "propensity": np.where(action == 1, 0.1, 0.9),
            "reward": 3.0 * cause + generator.normal(size=1_000)}  # fmt: skip


def many(generator: Generator) -> Arrays:
    """3,000 decisions among ten actions; a reward in three of a hundred."""
    seen, cause = _numbers(generator, 3_000)
    return {"observation": seen, "action": generator.integers(10, size=3_000), "propensity": np.full(3_000, 0.1),
            "reward": generator.random(3_000) < 0.06 * cause}  # fmt: skip


def chosen(generator: Generator) -> Arrays:
    """2,000 decisions by what is observed, without propensities; the same observation moves the reward."""
    seen, cause = _numbers(generator, 2_000)
    action = (generator.random(2_000) < 0.2 + 0.6 * cause).astype(int)
    return {"observation": seen, "action": action, "propensity": None,
            "reward": cause + 0.5 * generator.normal(size=2_000)}  # fmt: skip


def strata(generator: Generator) -> Arrays:
    """1,000 decisions in five villages, each with its own share and its own mean reward."""
    village = generator.choice(["a", "b", "c", "d", "e"], size=1_000)
    place = np.searchsorted(["a", "b", "c", "d", "e"], village)
    action = (generator.random(1_000) < 0.3 + 0.1 * place).astype(int)
    return {"observation": {"village": village}, "action": action, "propensity": {"shares_by": village},
            "reward": place + generator.normal(size=1_000)}  # fmt: skip


def visits(generator: Generator) -> Arrays:
    """500 episodes of four visits, three actions; a state that wanders by itself decides the last reward."""
    state = generator.normal(size=(500, 4)).cumsum(axis=1)
    reward = np.zeros((500, 4))
    reward[:, 3] = generator.random(500) < 1.0 / (1.0 + np.exp(-state[:, 3]))
    ends = np.tile([False, False, False, True], 500)
    return {"observation": state.reshape(-1, 1).astype(np.float32), "action": generator.integers(3, size=2_000),
            "propensity": np.full(2_000, 1.0 / 3.0), "reward": reward.ravel(), "terminated": ends,
            "episode": np.repeat(np.arange(500), 4)}  # fmt: skip


def offset(generator: Generator) -> Arrays:
    """800 decisions among three actions; amounts around a million."""
    seen, cause = _numbers(generator, 800)
    return {"observation": seen, "action": generator.integers(3, size=800), "propensity": "shares",
            "reward": 1e6 + 40.0 * cause + 25.0 * generator.normal(size=800)}  # fmt: skip


KINDS: tuple[Callable[[Generator], Arrays], ...] = (coin, money, uneven, many, chosen, strata, visits, offset)


def made(number: int) -> dict[str, Any]:
    """What the default path says of one log."""
    kind, seed = KINDS[number % len(KINDS)], FIRST_SEED + number
    arrays = {"terminated": True, **kind(np.random.default_rng(seed))}
    reward = np.asarray(arrays.pop("reward"), np.float64)
    log = tl.Log.from_arrays(**arrays, reward=reward, actions=int(arrays["action"].max()) + 1)
    outcome = default_path(log, scratch(NAME) / f"part-{os.getpid()}")
    return {"number": number, "kind": kind.__name__, "recommended": outcome.name, "decisions": outcome.decisions}


def study(logs: int = 400, workers: int = 2) -> None:
    """Judge every log, print and keep the counts."""
    rows = spread([(made, number) for number in range(logs)], scratch(NAME), workers)
    cells = []
    for kind in ("all", *(one.__name__ for one in KINDS)):
        mine = [row for row in rows if kind in ("all", row["kind"])]
        cells.append({
            "kind": kind, "logs": len(mine), "bound": int(binom.ppf(0.975, len(mine), 0.025)),
            "recommended": sum(row["recommended"] is not None for row in mine),
            "better": sum("better" in row["decisions"].values() for row in mine),
            "better_if_randomised": sum("better if randomised" in row["decisions"].values() for row in mine),
        })  # fmt: skip
        print(cells[-1], flush=True)
    keep(NAME, f"{COMMAND} --logs {logs}", {"first_seed": FIRST_SEED}, cells=cells)
