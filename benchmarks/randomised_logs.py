"""Verdicts on A/B tests of 500 decisions with numbers among the observations: how often *better* is right, and wrong.

A log has two numbers of no use, two actions drawn with 0.5 (or 0.7 and 0.3), and a reward of 0 or 1. The judged policy
always takes the second action, which earns as much as the first (null logs) or 0.2 more. Propensities are recorded,
declared as numbers, declared as shares, or absent. The oracle is a two-sample t-test at the judge's level. Promised: in
null logs *better* stays under the 97.5% binomial bound for 2.5%, counted with *better if randomised*, which is no
*better*, but says so where the condition holds by construction.

`python -m benchmarks.randomised_logs [--logs 200] [--powered 6] [--scratch FOLDER]` judges one log after another, saved
each, so that a later run goes on (about a second a log, one core).
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom, ttest_ind

import tidelog as tl
from benchmarks.keep import keep

EPISODES, FIRST_SEED, LEVEL = 500, 60_000, 0.05
KINDS = ((0.5, "recorded"), (0.7, "shares"), (0.5, "none"), (0.7, "declared"), (0.5, "shares"))


class Second:
    """Always the second action."""

    def probabilities(self, observation: dict[str, Any], mask: object = None) -> np.ndarray:
        """[B, A]."""
        return np.tile([0.0, 1.0], (len(next(iter(observation.values()))), 1))


def log_of(seed: int, gain: float, form: str, often: float) -> tl.Log:
    """An A/B test; `often` is the probability of the first action."""
    generator = np.random.default_rng(seed)
    arm = (generator.random(EPISODES) >= often).astype(int)
    reward = (generator.random(EPISODES) < 0.3 + gain * arm).astype(np.float32)
    chances = np.array([often, 1.0 - often], np.float32)
    forms = {"recorded": chances[arm], "declared": {"0": often, "1": 1.0 - often}, "shares": "shares", "none": None}
    seen = generator.normal(size=(EPISODES, 2)).astype(np.float32)
    return tl.Log.from_arrays(observation=seen, action=arm, reward=reward, terminated=True, propensity=forms[form])


def judged(seed: int, gain: float, form: str, often: float) -> dict[str, Any]:
    """One verdict, and what the oracle says of the same log."""
    log = log_of(seed, gain, form, often)
    began = time.perf_counter()
    verdict = tl.judge(
        Second(), log, ledger=False, learnt_from="other data", progress=False, limits=tl.Limits(replicates=1000)
    )
    arm, reward = np.asarray(log.action), np.asarray(log.reward)
    test = ttest_ind(reward[arm == 1], reward[arm == 0], equal_var=False)
    oracle = bool(test.pvalue < LEVEL and test.statistic > 0)
    seconds = time.perf_counter() - began
    return {
        "seed": seed,
        "decision": verdict.decision,
        "oracle": oracle,
        "reason": verdict.reasons[0],
        "seconds": seconds,
    }


def main() -> None:
    """Judge what is missing, print and keep the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=200, help="null logs of each form")
    parser.add_argument("--powered", type=int, default=6, help="logs with a gain of 0.2, of each form")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "tidelog-randomised-logs")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    cells = []
    for gain, logs in ((0.2, options.powered), (0.0, options.logs)):
        for often, form in KINDS:
            file = options.scratch / f"{gain}-{often}-{form}.jsonl"
            rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
            for seed in range(FIRST_SEED + len(rows), FIRST_SEED + logs):
                rows.append(judged(seed, gain, form, often))
                with file.open("a") as stream:
                    stream.write(json.dumps(rows[-1]) + "\n")
            said = Counter(row["decision"] for row in rows[:logs])
            cells.append({"gain": gain, "often": often, "propensities": form, "logs": logs, "decisions": dict(said),
                          "oracle": sum(row["oracle"] for row in rows[:logs]),
                          "bound": int(binom.ppf(0.975, logs, 0.025)) if not gain else None})  # fmt: skip
            print(cells[-1], flush=True)
    command = f"python -m benchmarks.randomised_logs --logs {options.logs} --powered {options.powered}"
    keep("randomised_logs", command, {"episodes": EPISODES}, cells=cells)


if __name__ == "__main__":
    main()
