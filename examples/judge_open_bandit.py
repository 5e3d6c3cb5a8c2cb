"""A policy of another make, judged on a log of even chances: what if the men's campaign showed items by fixed shares?

    python examples/judge_open_bandit.py random/men.csv.gz bts/men.csv.gz

The first file was recorded with every item equally likely, the second by Thompson sampling, whose shares of items at
each position are the policy that is judged. Both are in the small Open Bandit Dataset (Saito et al. 2021).
"""

import sys
from pathlib import Path

import numpy as np

import tidelog as tl

MAPPING = Path(__file__).with_name("open_bandit_men.toml")


class Shares:
    def __init__(self, log: tl.Log) -> None:
        position, items = log.transitions.observation["categorical"][:, 0], log.spec.action.n
        counts = np.stack([np.bincount(log.action[position == p], minlength=items) for p in range(3)])
        self.shares = counts / counts.sum(axis=1, keepdims=True)

    def probabilities(self, observation, mask=None):
        return self.shares[observation["categorical"][:, 0]]


even, sampled = (tl.read_log(path, MAPPING) for path in sys.argv[1:3])
policy = Shares(sampled)
verdict = tl.judge(policy, even)
print(f"{verdict.decision}: {verdict.paragraph}\n")
for row in verdict.estimates:
    print(f"{row.name:<12} {row.estimate:.5f}  ({row.low:.5f} to {row.high:.5f})")
print(f"clicked when Thompson sampling chose: {sampled.statistics().returns['mean']:.5f}")
