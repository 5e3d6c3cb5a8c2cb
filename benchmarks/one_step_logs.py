"""How many updates small logs of single decisions ask for: the true value of IQL's policy while it trains.

Problems with known rewards, logged by uniform choices: the reward of an action is 1 with a chance that depends on the
observation by a random linear function. Half of the rows is held out, as for a verdict. Every run has the settings that
follow its log; the values of its policies, with sampled actions, are exact over 20,000 new observations.

Command: `python -m benchmarks.one_step_logs`
"""

from __future__ import annotations

import numpy as np

import tidelog as tl
from benchmarks.keep import keep
from tidelog.auto.settings import suggest

COMMAND = "python -m benchmarks.one_step_logs"
FEATURES, SEEDS, UPDATES, EVERY, NEW = 10, 2, 5_000, 250, 20_000
# rows, actions, chance of a reward at most, how much of it depends on the observation
PROBLEMS = {
    "small, few rewards": (2_000, 10, 0.05, 1.0),
    "small, many rewards": (2_000, 10, 0.5, 1.0),
    "larger, few rewards": (10_000, 10, 0.05, 1.0),
    "larger, many rewards": (10_000, 10, 0.5, 1.0),
}


def chances(observation: np.ndarray, weights: np.ndarray, most: float, strength: float) -> np.ndarray:
    """[B, A]: the chance of a reward of every action."""
    return most / (1.0 + np.exp(-strength * observation @ weights))


def study() -> dict:
    """Train on every log, and keep the values at every report."""
    found = {}
    for name, (rows, actions, most, strength) in PROBLEMS.items():
        generator = np.random.default_rng(len(name))
        weights = generator.normal(size=(FEATURES, actions))
        seen, new = (generator.normal(size=(count, FEATURES)).astype(np.float32) for count in (rows, NEW))
        action = generator.integers(actions, size=rows)
        reward = generator.random(rows) < chances(seen, weights, most, strength)[np.arange(rows), action]
        log = tl.Log.from_arrays(
            observation=seen, action=action, reward=reward.astype(np.float32), terminated=np.ones(rows, bool),
            propensity=np.full(rows, 1.0 / actions), actions=actions,
        )  # fmt: skip
        truth = chances(new, weights, most, strength)

        def value(policy: tl.Policy, new: np.ndarray = new, truth: np.ndarray = truth) -> float:
            return float((policy.probabilities({"observation": new}) * truth).sum(1).mean())

        algorithm = suggest(tl.IQL, log, held_out=0.5).algorithm
        run = tl.fit(
            algorithm, log, UPDATES, SEEDS, held_out=0.5, scale="standard", every=EVERY, evaluate={"value": value},
            progress=False,
        )  # fmt: skip
        updates = sorted({row["update"] for row in run.metrics})
        mean = {
            metric: [float(np.mean([row[metric] for row in run.metrics if row["update"] == at])) for at in updates]
            for metric in ("value", "held_out/actor_loss")
        }
        found[name] = {"logger": float(truth.mean()), "best": float(truth.max(1).mean()), "updates": updates, **mean}
        print(name, found[name], flush=True)
    keep("one_step_logs", COMMAND, {"seeds": SEEDS, "held_out": 0.5, "logs": found})
    return found


if __name__ == "__main__":
    study()
