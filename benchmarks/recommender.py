"""Recommenders on two real logs and on a user whose optimum is known.

`entree`: the next event of sessions that begin after a cut, accepted restaurants among them. `online_retail`: each
customer's first basket after a cut, customers without a purchase before it left out. Both always beside popularity,
last-item Markov, item-kNN and the supervised encoder alone, on the same split in one table. `satiation`: clicks a visit
in the built-in simulator, beside the logger, its imitation, and the best policies that dynamic programming finds.

What is learnt stands in `LEARNT`: a name, and a function from interactions and a seed to rankers by name. Add a line to
put another algorithm into every table.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

import tidelog as tl
from benchmarks import entree, online_retail
from benchmarks.keep import SHARED, keep, seed_interval
from tidelog.envs import satiation as world
from tidelog.judging.histories import Cases, next_baskets, next_events
from tidelog.judging.rankers import ItemKNN, Markov, OwnFrequency, Popularity, Ranker
from tidelog.judging.ranking import Comparison, compare

COMMAND = "python -m benchmarks.recommender {}"
K = 10
SEEDS = {"entree": 3, "online_retail": 3, "satiation": 5}
STEPS = {"entree": 6_000, "online_retail": 6_000, "satiation": 8_000}
SETTINGS: dict[str, dict[str, Any]] = {"entree": {}, "online_retail": {}, "satiation": {"history": 30, "size": 32}}
VISITS, PLAYED = 5_000, 5_000  # visits in a log, and to measure a policy by
THRESHOLDS = (0.2, 0.3)
BCQ, ENCODER = "recommender BCQ", "encoder alone"

Rankers = Mapping[str, Ranker]


def recommender_bcq(log: Any, study: str, seed: int) -> Rankers:
    """Recommender BCQ, and its supervised encoder alone: the same reader and item table, ranked by likelihood."""
    algorithm = tl.RecommenderBCQ(**SETTINGS[study])
    policy = tl.fit(algorithm, log, steps=STEPS[study], seeds=[seed], held_out=0.1).policy()
    return {BCQ: policy.ranker(), ENCODER: policy.ranker(supervised=True)}


LEARNT: tuple[Callable[[Any, str, int], Rankers], ...] = (recommender_bcq,)


def baselines(log: Any, by_event: bool) -> dict[str, Ranker]:
    """What counts instead of learning."""
    found: dict[str, Ranker] = {"popularity": Popularity.of(log), "last-item Markov": Markov.of(log)}
    if by_event:
        found["last item and event"] = Markov.of(log, by_event=True)
    return found | {"item-kNN": ItemKNN.of(log), "own frequency": OwnFrequency.of(log, filled=True)}


def interactions(frame: pl.DataFrame) -> Any:
    """A frame of benchmarks/entree.py or benchmarks/online_retail.py through the library's own door."""
    columns = ["user", "item", "time", "event", "reward"]
    return tl.read_interactions(
        frame.select(columns), user="user", item="item", time="time", event="event", reward="reward"
    )


def entree_cases() -> tuple[Any, Cases, tuple[str, ...]]:
    """The sessions to learn from, and every later event; intervals are over visitors."""
    frame = entree.read(SHARED / "data/uci_entree/sessions.csv.gz")
    log = interactions(frame)
    split = log.split(at=entree.CUT)
    visitor = frame.unique("user").sort("user")["visitor"].to_numpy()
    cases = next_events(log, split.test.targets).warm
    return split.train, cases.by(visitor[np.searchsorted(np.sort(frame["user"].unique()), log.users)]), log.events


def online_retail_cases() -> tuple[Any, Cases, tuple[str, ...]]:
    """The purchases to learn from, and each known customer's next basket."""
    log = interactions(online_retail.read(SHARED / "data/online_retail_cc0/online_retail_2010_2011.parquet"))
    split = log.split(at=online_retail.CUT)
    return split.train, next_baskets(log, split.test.targets).warm, ()


REAL = {"entree": entree_cases, "online_retail": online_retail_cases}


def real_study(name: str, seeds: int) -> dict[str, Any]:
    """One table a seed: baselines and everything learnt, with how BCQ differs from its own encoder."""
    log, cases, kinds = REAL[name]()
    taken = Popularity.of(log).counts
    tables = []
    for seed in range(seeds):
        rankers: dict[str, Ranker] = {} if seed else baselines(log, by_event=bool(kinds))
        seconds = time.perf_counter()
        for learn in LEARNT:
            rankers |= learn(log, name, seed)
        found = compare(rankers, cases, taken, K, kinds) if rankers else None
        print(f"{name}, seed {seed}, {time.perf_counter() - seconds:.0f} s\n{found and found.text()}", flush=True)
        tables.append(found)
    return {
        "k": K, "cases": len(cases), "items": len(log.items), "events": len(log), "steps": STEPS[name],
        "settings": SETTINGS[name], "seeds": seeds, "tables": [found.to_json() for found in tables if found],
        "differences": [differences(found) for found in tables if found],
    }  # fmt: skip


def differences(found: Comparison) -> dict[str, Any]:
    """BCQ minus its own encoder on the same users, by kind of event and measure."""
    kinds = [row.kind for row in found.rows if row.ranker == BCQ]
    return {
        kind: {
            measure: list(found.difference(BCQ, ENCODER, measure, kind)) for measure in ("hit rate", "ndcg", "reward")
        }
        for kind in kinds
    }


def logged_visits(seed: int) -> Any:
    """A log of the editor's, with what it showed and how likely that was."""
    seen = world.visits(world.knowing(world.editor()), VISITS, seed=1_000 + seed)
    return tl.read_interactions(
        pl.DataFrame(
            {
                "user": seen.user, "item": seen.items[seen.item - 1].astype(str), "time": seen.time,
                "event": np.array(seen.events)[seen.event - 1], "reward": seen.reward, "chance": seen.propensity,
            }
        ),
        user="user", item="item", time="time", event="event", reward="reward", session_gap=1.5, propensity="chance",
    )  # fmt: skip


def shown_first(ranker: Ranker, log: Any) -> world.Act:
    """A ranker as a policy that shows the first item of its list; items are known to the log by name."""
    action = np.array([world.ITEMS.index(str(item)) for item in log.items])
    number = np.append(0, np.argsort(action) + 1)
    kind = np.array([0, *(log.events.index(event) + 1 for event in world.EVENTS)])

    def act(histories: Any, events: Any) -> Any:
        items, _ = ranker.rank(number[histories].astype(np.int32), kind[events].astype(np.int32), 1)
        return np.eye(len(world.ITEMS))[action[items[:, 0] - 1]]

    return act


def satiation_study(seeds: int) -> dict[str, Any]:
    """Clicks a visit of everything learnt, each seed from a log of its own, beside exact values."""
    problem, editor = world.satiation(), world.editor()
    best = {threshold: problem.optimal(allowed=world.within(editor, threshold))[0] for threshold in THRESHOLDS}
    exact = {
        "logger": world.exact_value(editor),
        "its commonest choice": world.exact_value(editor.argmax(1)),
        "likeliest click": world.exact_value(world.clicks().argmax(1)),
        **{f"best within support {threshold:g}": value for threshold, value in best.items()},
        "optimal": problem.optimal()[0],
    }
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        log = logged_visits(seed)
        rankers: dict[str, Ranker] = {"popularity": Popularity.of(log), "last-item Markov": Markov.of(log)}
        for learn in LEARNT:
            rankers |= learn(log, "satiation", seed)
        for name, ranker in rankers.items():
            played = world.visits(shown_first(ranker, log), PLAYED, seed=2_000 + seed)
            found.setdefault(name, []).append(float(played.returns.mean()))
        print(f"satiation, seed {seed}: { {name: round(each[-1], 2) for name, each in found.items()} }", flush=True)
    return {
        "visits": VISITS, "played": PLAYED, "steps": STEPS["satiation"], "settings": SETTINGS["satiation"],
        "seeds": seeds, "exact": exact, "values": found,
        "intervals": {name: list(seed_interval(each)) for name, each in found.items()} if seeds > 1 else {},
    }  # fmt: skip


def study(name: str, seeds: int | None = None) -> dict[str, Any]:
    """One of `entree`, `online_retail`, `satiation`, kept."""
    seeds = SEEDS[name] if seeds is None else seeds
    found = satiation_study(seeds) if name == "satiation" else real_study(name, seeds)
    keep(f"recommender_{name}", COMMAND.format(name), found)
    return found


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*REAL, "satiation"]:
        study(chosen)
