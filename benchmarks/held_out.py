"""How large a share of single decisions to hold out: the true gain of what the default path recommends.

Generated logs of single decisions, three actions drawn with equal chances, six numbers as observation. `one action`: an
action is better for everybody; `by a number`: which of two actions is better depends on one number; `smooth`: gains are
a random linear function of the observation; each in a reward of 0 or 1 and in one with normal noise. Gains shrink with
the root of the number of decisions, so that at every size some logs can show them and some cannot. The gain of *keep
what you have* is 0. The means are paired over the same logs.

`python -m benchmarks.held_out [--logs 8]` trains and judges one log after another, saved each, so that a later run goes
on (about 3 seconds a log, one core).
"""

import argparse
import json
from typing import Any

import numpy as np

import tidelog as tl
from benchmarks.default_path import default_path, scratch
from benchmarks.keep import keep

NAME, COMMAND = "held_out", "python -m benchmarks.held_out"
FEATURES, ACTIONS, NEW, FIRST_SEED = 6, 3, 20_000, 40_000
SHARES, SIZES, PROBLEMS, NOISES = (0.2, 0.35, 0.5), (1_000, 4_000), ("one action", "by a number", "smooth"), (
    "yes or no", "normal"
)  # fmt: skip


def effects(problem: str, observation: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[N, A]: the mean reward of each action in standard deviations of the reward, of mean 0 under the logger."""
    if problem == "one action":
        effect = np.tile([0.0, 0.0, 1.5], (len(observation), 1))
    elif problem == "by a number":
        high = observation[:, 0] > 0.0
        effect = np.stack([np.zeros(len(high)), np.where(high, 1.5, -0.5), np.where(high, -0.5, 1.5)], axis=1)
    else:
        effect = observation @ weights
    return effect - effect.mean(axis=1, keepdims=True)


def problem_of(problem: str, noise: str, rows: int, seed: int) -> tuple[tl.Log, np.ndarray, np.ndarray]:
    """A log, and new observations [N, O] with the mean rewards of all actions [N, A]."""
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=(FEATURES, ACTIONS)) / np.sqrt(FEATURES)
    seen, new = (generator.normal(size=(count, FEATURES)).astype(np.float32) for count in (rows, NEW))
    size = 7.0 / np.sqrt(rows)
    action = generator.integers(ACTIONS, size=rows)
    mean = size * effects(problem, seen, weights)[np.arange(rows), action]
    if noise == "normal":
        reward = mean + generator.normal(size=rows)
        truth = size * effects(problem, new, weights)
    else:
        deviation = np.sqrt(0.3 * 0.7)
        reward = generator.random(rows) < 0.3 + deviation * mean
        truth = deviation * size * effects(problem, new, weights)
    log = tl.Log.from_arrays(
        observation=seen, action=action, reward=reward.astype(np.float32), terminated=True, actions=ACTIONS,
        propensity=np.full(rows, 1.0 / ACTIONS),
    )  # fmt: skip
    return log, new, truth


def outcomes(share: float, problem: str, noise: str, rows: int, seed: int) -> dict[str, Any]:
    """What the default path recommends of one log, and its true gain beside the best policy's."""
    log, new, truth = problem_of(problem, noise, rows, seed)
    found = default_path(log, scratch(NAME) / "part", "--held-out", str(share))
    gain = 0.0 if found.policy is None else float((found.policy.probabilities(new) * truth).sum(1).mean())
    gains = {name: float((one.probabilities(new) * truth).sum(1).mean()) for name, one in found.candidates.items()}
    return {"seed": seed, "recommended": found.name, "gain": gain, "best": float(truth.max(1).mean()), "gains": gains}


def main() -> None:
    """Make what is missing, print and keep the means."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=8)
    logs = parser.parse_args().logs
    cells = []
    for rows in SIZES:
        for problem in PROBLEMS:
            for noise in NOISES:
                gained = {}
                for share in SHARES:
                    file = scratch(NAME) / f"{problem}-{noise}-{rows}-{share}.jsonl"
                    made = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
                    for seed in range(FIRST_SEED + len(made), FIRST_SEED + logs):
                        made.append(outcomes(share, problem, noise, rows, seed))
                        with file.open("a") as stream:
                            stream.write(json.dumps(made[-1]) + "\n")
                    best = np.array([one["best"] for one in made[:logs]])
                    gained[share] = np.array([one["gain"] for one in made[:logs]]) / best
                    cells.append({
                        "rows": rows, "problem": problem, "reward": noise, "share": share, "logs": logs,
                        "gain": float(gained[share].mean()),
                        "error": float(gained[share].std(ddof=1) / np.sqrt(logs)),
                        "recommended": sum(one["recommended"] is not None for one in made[:logs]),
                        "candidates": {name: float(np.mean([one["gains"].get(name, np.nan) for one in made[:logs]]) /
                                                   best.mean()) for name in made[0]["gains"]},
                    })  # fmt: skip
                    print(cells[-1], flush=True)
    keep(NAME, f"{COMMAND} --logs {logs}", {"unit": "share of the best policy's gain over the logger"}, cells=cells)


if __name__ == "__main__":
    main()
