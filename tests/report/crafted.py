"""Verdicts made by hand, of every decision, and runs to put them into."""

import json

import numpy as np

from tidelog.ope.estimators import Estimate, Estimates, Support
from tidelog.ope.verdict import Verdict
from tidelog.policies.statistics import Interval

MIDDLE = {"better": 0.08, "worse": -0.09, "no difference shown": 0.01, "unsupported": 0.2}
HALF = {"better": 0.05, "worse": 0.04, "no difference shown": 0.05, "unsupported": 0.4}
SUPPORT = Support(
    episodes=200, effective_sample_size=91.25, largest_weight=0.031, mean_weight=1.02, mean_weight_error=0.06,
    pareto_k=0.41, clipped_share=0.0, unsupported_mass=0.012, horizon=12,
)  # fmt: skip


def estimate(name, middle=0.7, half=0.05, note=""):
    return Estimate(name, middle, middle - half, middle + half, "bootstrap", 0.95, SUPPORT, True, np.zeros(200), note)


def verdict(decision="better", before=0, **changes):
    """A verdict whose numbers go with its decision."""
    middle, half = MIDDLE[decision], HALF[decision]
    weights = np.exp(np.random.default_rng(0).normal(0.0, 0.9, 200))
    weights[:7] = 0.0
    content = {
        "decision": decision,
        "reasons": (f"the first reason for {decision}", "the second reason"),
        "outcome": f"A paragraph about {decision}.",
        "next_step": "",
        "paragraph": f"A paragraph about {decision}.",
        "estimand": "mean return up to the recorded end",
        "deciding": "wdr",
        "difference": Interval(middle, middle - half, middle + half),
        "behavior_policy": Interval(0.62, 0.57, 0.67),
        "difference_from_bc": Interval(middle / 2, middle / 2 - half, middle / 2 + half),
        "estimates": Estimates([estimate("wdr"), estimate("fqe"), estimate("wis", note="a note")]),
        "support": SUPPORT,
        "level": 0.95,
        "episodes": 200,
        "weights": weights,
        "context": {"policy": "seed 0", "judged_before": before, "limits": {"largest weight": 0.1}},
    }
    return Verdict(**{**content, **changes})


def put(run, name, given):
    """Write a verdict into a run folder; returns its file."""
    path = run / "verdicts" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(given.to_json(), allow_nan=False))
    return path


def played(run, env, returns, how="deterministic"):
    path = run / "evaluations" / f"{env.replace('/', '-')}-{how}-0.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"env": env, "sampled": how == "sampled", "seed": 0, "returns": returns}))
    return path
