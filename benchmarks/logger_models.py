"""Models of the logger on logs whose logger is known: the default one (counts or a network) beside boosted trees.

Loss is the mean negative logarithm of the probability of a logged decision in the other fold, in nats; `truth` is that
of the logger's own probabilities. The mean weight is that of a uniform choice: 1 for true probabilities, less if some
actions are never taken (ICU-Sepsis).
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tidelog as tl
from benchmarks.calibration import made_log
from benchmarks.keep import keep, seed_interval
from tidelog.data.concat import is_tabular
from tidelog.ope.policy_evidence import choose_model
from tidelog.ope.propensities import propensities_of

COMMAND = "python -m benchmarks.logger_models"
SEEDS = 5
MODELS = ("estimated", "trees")  # as `tl.judge(propensities=...)` names them


def words(rows: int, seed: int) -> Any:
    """Four columns of words and two of numbers; the logger follows rules of two columns at a time."""
    rng = np.random.default_rng([seed, rows])
    word, number = rng.integers(0, 20, (rows, 4)), rng.normal(size=(rows, 2))
    young, odd = number[:, 0] < 0.0, word[:, 0] % 2 == 1
    favourite = np.where(young & odd, 0, np.where(word[:, 1] % 5 == 0, 1, np.where(number[:, 1] > 0.5, 2, 3)))
    chances = np.full((rows, 4), 0.04) + 0.84 * np.eye(4)[favourite]
    action = (chances.cumsum(1) > rng.random((rows, 1))).argmax(1)
    return tl.Log.from_arrays(
        observation={"number": number, "word": word}, categorical=["word"], action=action, actions=4,
        reward=1.0 * (action == favourite), episode=np.arange(rows), terminated=np.ones(rows, bool),
        propensity=chances[np.arange(rows), action],
    )  # fmt: skip


LOGS: dict[str, tuple[Callable[[int, int], Any], int]] = {
    "words and numbers, 1,000 rows": (words, 1_000),
    "words and numbers, 5,000 rows": (words, 5_000),
    "words and numbers, 20,000 rows": (words, 20_000),
    "treatment, 1,000 episodes": (lambda size, seed: made_log("treatment", size, seed), 1_000),
    "ICU-Sepsis, 1,000 episodes": (lambda size, seed: made_log("icu-sepsis", size, seed), 1_000),
}


def measure(log: Any, seed: int) -> dict[str, Any]:
    """The fit of each model on a log, and the logger's own loss."""
    plan = choose_model(log, None, 2, seed)
    row: dict[str, Any] = {"truth": float(-np.log(np.asarray(log.propensity, np.float64)).mean())}
    for model in MODELS:
        found = propensities_of(log, plan.folds, model, states=plan.states, seed=seed)
        if found.fit is None:
            raise TypeError("discrete actions have a fit")
        row |= {model: found.fit._asdict() | {"by": found.by}}
    return row | {"table": is_tabular(log)}


def main(names: list[str]) -> None:
    """Measure all logs and keep the results."""
    rows = []
    for name, (make, size) in LOGS.items():
        if names and not any(part in name for part in names):
            continue
        found = [measure(make(size, seed), seed) for seed in range(SEEDS)]
        row: dict[str, Any] = {"log": name, "by": found[0]["estimated"]["by"]}
        row["truth"] = float(np.mean([one["truth"] for one in found]))
        row["constant"] = float(np.mean([one["trees"]["constant"] for one in found]))
        for model in MODELS:
            row[model] = seed_interval([one[model]["loss"] for one in found])._asdict()
            row[f"{model}, mean weight"] = [one[model]["mean_weight"] for one in found]
        gains = [one["estimated"]["loss"] - one["trees"]["loss"] for one in found]
        row["gain of trees"] = seed_interval(gains)._asdict()
        rows.append(row)
        print(row, flush=True)
    keep("logger_models", COMMAND, {"seeds": SEEDS}, rows=rows)


if __name__ == "__main__":
    main(sys.argv[1:])
