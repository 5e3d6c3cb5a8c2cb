"""How much a verdict depends on the seed of the judge, with and without the shrinkage of network values.

IQL learns from half of an evenly random log of the Open Bandit Dataset (Saito et al. 2021), in which a click comes 4 or
5 times in 1,000; the other half judges the sampled policy, once for each seed of the judge's folds and networks.
`python -m benchmarks.judge_seeds` keeps decisions, and the spread of the estimates over the seeds as a share of half
the width of the interval.
"""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tidelog as tl
from benchmarks.keep import SHARED, keep
from tidelog.ope import policy_evidence

COMMAND = "python -m benchmarks.judge_seeds"
MAPPINGS = Path(__file__).resolve().parents[1] / "examples"
SEEDS = 5


def judged(campaign: str) -> list[dict[str, Any]]:
    """Decisions and estimates of every seed, with shrunk values and with those of the networks."""
    log = tl.read_log(
        SHARED / f"data/obd_small/random/{campaign}/{campaign}.csv.gz", MAPPINGS / f"open_bandit_{campaign}.toml"
    )
    train, held_out = log.split(0.5, seed=0)
    suggestion = tl.suggest(tl.IQL, train)
    policy = tl.fit(suggestion.algorithm, train, suggestion.steps, progress=False).policy()
    rows = []
    for name, shrink in (("shrunk", policy_evidence.shrunk), ("as found", lambda evidence: (evidence, 1.0))):
        with mock.patch.object(policy_evidence, "shrunk", shrink):
            verdicts = [
                tl.judge(policy, held_out, sample=True, seed=seed, ledger=False, progress=False)
                for seed in range(SEEDS)
            ]
        found = np.asarray([one.difference for one in verdicts])
        row = {
            "campaign": campaign, "clicks": int(held_out.reward.sum()), "rows": held_out.steps, "values": name,
            "decisions": [one.decision for one in verdicts], "differences": np.round(found, 6).tolist(),
            "spread_share": float(found[:, 0].std(ddof=1) / ((found[:, 2] - found[:, 1]).mean() / 2)),
        }  # fmt: skip
        print(row, flush=True)
        rows.append(row)
    return rows


if __name__ == "__main__":
    keep("judge_seeds", COMMAND, {"rows": [row for campaign in ("women", "men") for row in judged(campaign)]})
