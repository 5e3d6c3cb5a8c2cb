"""Readers of histories on users that are not reported: time gaps, kinds of event, gBCE, vectors of users.

Both real logs end at the cut of their study and are split at an earlier one (`EARLIER` in
`benchmarks/recommender.py`), so nothing here is chosen on reported users. Each reader is trained alone, without Q, and
compared with the default reader on the same users and the same seeds. A gain is the mean over seeds with a 95% interval
over seeds, which holds the users fixed. In Entree the times within a session are made from the order of the clicks, one
second each: time gaps have no information there and are left out. `without kinds` has one kind of event for all, in
learning and in the histories of cases; Online Retail has one kind only. `online_retail_users` adds a vector for each
user; in Entree every session counts as a user of its own, and none comes back.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.recommender import REAL, SETTINGS, STEPS, K
from tidelog.recommend.evaluate import Popularity, compare
from tidelog.recommend.interactions import Cases

COMMAND = "python -m benchmarks.recommender_readers {}"
SEEDS = 5
MEASURES = ("hit rate", "ndcg", "mrr")
ALONE = {"pretrain_share": 1.0}
GAPS, GBCE, USERS = {"time_gaps": True}, {"item_loss": "gbce"}, {"user_embedding": True}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {  # what each reader changes
    "entree": {"default": {}, "gbce": GBCE, "without kinds": {}},
    "online_retail": {"default": {}, "time gaps": GAPS, "gbce": GBCE},
    "online_retail_users": {
        "default": {},
        "users, dropout 0.1": USERS | {"user_dropout": 0.1},
        "users, dropout 0.5": USERS | {"user_dropout": 0.5},
    },
}
LOGS = {"online_retail_users": "online_retail"}  # where the study has another name than its log


def one_kind(log: Any) -> Any:
    """The log with one kind of event."""
    return replace(log, events=("event",), event=np.ones_like(log.event))


def without_kinds(cases: Cases) -> Cases:
    """Cases whose histories have one kind of event."""
    seen = cases.histories
    return replace(cases, histories=seen._replace(events=(seen.events > 0).astype(np.int32)))


def seed_scores(name: str, seed: int, steps: int) -> dict[str, dict[str, float]]:
    """The measures of every reader trained with one seed."""
    data = LOGS.get(name, name)
    log, cases, _ = REAL[data](earlier=True)
    scores = {}
    for variant, settings in VARIANTS[name].items():
        algorithm = tl.RecommenderBCQ(**(SETTINGS[data] | ALONE | settings))
        plain = variant == "without kinds"
        learnt_from, mine = (one_kind(log), without_kinds(cases)) if plain else (log, cases)
        policy = tl.fit(algorithm, learnt_from, steps=steps, seeds=[seed], every=steps).policy()
        found = compare({variant: policy.ranker(supervised=True)}, mine, Popularity.of(log).counts, K)
        scores[variant] = {measure: found.row(variant).scores[measure].estimate for measure in MEASURES}
        print(f"{name}, seed {seed}, {variant}: {scores[variant]}", flush=True)
    return scores


def study(name: str) -> None:
    """Measure the readers of one log with all seeds, and keep the result."""
    data = LOGS.get(name, name)
    steps = round(STEPS[data] * SETTINGS[data]["pretrain_share"])
    found = [seed_scores(name, seed, steps) for seed in range(SEEDS)]
    rows = [
        {"seed": seed, "reader": reader} | scores for seed, one in enumerate(found) for reader, scores in one.items()
    ]
    gains = []
    for variant in list(VARIANTS[name])[1:]:
        for measure in MEASURES:
            each = [one[variant][measure] - one["default"][measure] for one in found]
            gains.append({"reader": variant, "over": "default", "measure": measure, "gain": list(seed_interval(each))})
    facts = {"k": K, "steps": steps, "seeds": SEEDS, "settings": SETTINGS[data] | ALONE}
    keep(f"recommender_readers_{name}", COMMAND.format(name), facts, rows=rows, gains=gains)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or VARIANTS:
        study(chosen)
