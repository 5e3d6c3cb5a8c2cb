"""Recommenders on three real logs and on a user whose optimum is known.

`entree`: the next event of sessions that begin after a cut, accepted restaurants among them. `online_retail`: each
customer's first basket after a cut, customers without a purchase before it left out. `open_bandit`: the next click in a
sample with few. All always beside popularity, last-item Markov, item-kNN and the supervised encoder alone, on the same
split in one table. `satiation`: clicks a visit in the built-in simulator, beside the behaviour policy, its imitation,
and the best policies that dynamic programming finds. `generators`, only when named: the two generators of candidates
there, of one encoder for each seed (other ways to rank by `vae` were measured once, and are in the kept file).

What is learnt stands in `LEARNT`: functions from interactions, a study and a seed to rankers by name. Add a line to put
another algorithm into every table. `SETTINGS` were chosen on an earlier cut of what the real studies learn from (at
1998-09-01, 2011-09-15 and 2019-11-28), and on simulator seeds from 100 on; nothing was chosen on what is reported.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import polars as pl

import tidelog as tl
from benchmarks import real_events
from benchmarks.keep import SHARED, keep, seed_interval
from benchmarks.spread import scratch, spread
from tidelog.envs import satiation
from tidelog.recommend.evaluate import (
    ItemKNN,
    Markov,
    OwnFrequency,
    Popularity,
    RankerComparison,
    TifuKNN,
    compare,
)
from tidelog.recommend.interactions import Cases, next_baskets, next_events
from tidelog.runtime.ranking import Ranks
from tidelog.types import HistoryArrays, HistoryNames

COMMAND = "python -m benchmarks recommender {}"
K = 10
SEEDS = 5
STEPS = {"entree": 6_500, "online_retail": 1_500, "open_bandit": 500, "satiation": 10_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "entree": {
        "history": 15, "targets": 4, "candidates": 10, "hidden": (64, 64), "pretrain_share": 5_000 / 6_500,
        "joint": False, "tau": 0.01, "discount": 0.0,
    },
    "online_retail": {
        "encoder": "mean", "history": 100, "memory": 256, "batch_size": 64, "learning_rate": 2e-3, "candidates": 10,
        "hidden": (64, 64), "pretrain_share": 0.9, "joint": False, "tau": 0.01, "discount": 0.0,
    },
    "open_bandit": {
        "encoder": "mean", "history": 10, "memory": 10, "size": 16, "batch_size": 32, "targets": 1, "candidates": 10,
        "hidden": (32,), "pretrain_share": 0.9, "joint": False, "discount": 0.0,
    },
    "satiation": {
        "history": 25, "size": 32, "candidates": 12, "hidden": (64, 64), "threshold": 0.2, "q_weight": 10.0,
        "pretrain_share": 0.4, "joint": False, "tau": 0.01,
    },
}  # fmt: skip
VISITS, PLAYED = 20_000, 5_000  # visits in a log, and to measure a policy by
THRESHOLDS = (0.2, 0.3)
# generators of candidates on the simulator, with smaller windows and networks than `satiation`: minutes a seed
SMALLER: dict[str, Any] = {
    "memory": 25, "batch_size": 64, "generator_hidden": (64, 64), "perturbation_hidden": (64,), "joint": False,
}  # fmt: skip
GENERATORS: dict[str, dict[str, Any]] = {"likelihood": {}, "vae": {"generator": "vae"}}
GENERATOR_STEPS = (4_000, 6_000)  # of the encoder alone, and of all else
GENERATOR_PLAYED, STATES = 2_000, 500  # visits, and states of a log in which candidates are counted
BCQ, ENCODER = "recommender BCQ", "encoder alone"

Rankers = Mapping[str, Ranks]


def recommender_bcq(log: Any, study: str, seed: int) -> Rankers:
    """Recommender BCQ, and its supervised encoder alone: the same reader and item table, ranked by likelihood."""
    algorithm = tl.RecommenderBCQ(**SETTINGS[study])
    policy = fitted(algorithm, log, study, seed)
    return {BCQ: policy.ranker(), ENCODER: policy.ranker(supervised=True)}


def fitted(algorithm: Any, log: Any, study: str, seed: int) -> tl.Policy:
    """What a study learns from a whole log; before, a run without its last tenth of time chooses how much Q counts."""
    steps = STEPS[study]
    if algorithm.q_weight is None:
        chosen = tl.fit(algorithm, log, steps=steps, seeds=[seed], held_out=0.1, eval_every=steps).policy()
        print(f"{study}, seed {seed}: weight of Q {float(chosen.params.weight):g}", flush=True)
        algorithm = replace(algorithm, q_weight=float(chosen.params.weight))
    return tl.fit(algorithm, log, steps=steps, seeds=[seed], eval_every=steps).policy()


LEARNT: tuple[Callable[..., Rankers], ...] = (recommender_bcq,)


def baselines(by_event: bool) -> tuple[Callable[[Any], Rankers], ...]:
    """What counts instead of learning: functions from interactions to a ranker by name."""
    found: dict[str, Callable[[Any], Ranks]] = {"popularity": Popularity.of, "last-item Markov": Markov.of}
    if by_event:
        found["last item and event"] = partial(Markov.of, by_event=True)
    found |= {
        "item-kNN": ItemKNN.of,
        "own frequency": partial(OwnFrequency.of, filled=True),
        "TIFU-kNN": TifuKNN.of,
    }

    def fit(log: Any, name: str) -> Rankers:
        return {name: found[name](log)}

    return tuple(partial(fit, name=name) for name in found)


def interactions(frame: pl.DataFrame, gap: float | None = None) -> Any:
    """A frame of benchmarks/real_events.py through the library's own door."""
    columns = ["user", "item", "time", "event", "reward"]
    return tl.read_interactions(
        frame.select(columns), user="user", item="item", time="time", event="event", reward="reward", session_gap=gap
    )


def entree_cases() -> tuple[Any, Cases, tuple[str, ...]]:
    """The sessions to learn from, and every later event; intervals are over visitors."""
    frame = real_events.entree(SHARED / "data/uci_entree/sessions.csv.gz")
    log = interactions(frame, gap=3_600.0)  # a session is over at its end
    split = log.split(at=real_events.CUTS["entree"])
    visitor = frame.unique("user").sort("user")["visitor"].to_numpy()
    cases = next_events(log, split.test.targets).with_history
    return (
        split.train,
        cases.grouped_by(visitor[np.searchsorted(np.sort(frame["user"].unique()), log.users)]),
        log.events,
    )


def online_retail_cases(shuffled: int | None = None) -> tuple[Any, Cases, tuple[str, ...]]:
    """The purchases to learn from, and each known customer's next basket.

    A basket's items have one time; they stand in the order of their codes, or in a random one with the seed `shuffled`.
    """
    frame = real_events.online_retail(SHARED / "data/online_retail_cc0/online_retail_2010_2011.parquet")
    if shuffled is not None:
        mixed = frame.sample(fraction=1.0, shuffle=True, seed=shuffled)
        frame = mixed.sort("user", "time", maintain_order=True)
    log = interactions(frame)
    split = log.split(at=real_events.CUTS["online_retail"])
    return split.train, next_baskets(log, split.test.targets).with_history, ()


def open_bandit_cases() -> tuple[Any, Cases, tuple[str, ...]]:
    """The clicks to learn from, and every later click of a group of people that had clicked before."""
    log = interactions(real_events.open_bandit(SHARED / "data/obd_small"))
    split = log.split(at=real_events.CUTS["open_bandit"])
    return split.train, next_events(log, split.test.targets).with_history, ()


REAL: dict[str, Callable[..., Any]] = {
    "entree": entree_cases,
    "online_retail": online_retail_cases,
    "open_bandit": open_bandit_cases,
}


def real_seed(name: str, seed: int) -> dict[str, Any]:
    """A table of what is learnt with a seed, of baselines too for the first, and how BCQ differs from its encoder."""
    log, cases, kinds = REAL[name]()
    rankers: dict[str, Ranks] = {}
    seconds: dict[str, float] = {}  # of the processor, until a ranker can rank; those learnt together have one time
    for fit in (*baselines(by_event=bool(kinds)), *(partial(learn, study=name, seed=seed) for learn in LEARNT)):
        begun = time.process_time()
        learnt = fit(log)
        rankers |= learnt
        seconds |= dict.fromkeys(learnt, time.process_time() - begun)
    counted = [one for one in rankers if one not in (BCQ, ENCODER)]
    found = compare(rankers, cases, Popularity.of(log).counts, K, kinds)
    print(f"{name}, seed {seed}, {sum(seconds.values()):.0f} s\n{found.text()}", flush=True)
    size = {"cases": len(cases), "items": len(log.items), "events": len(log)}
    together = found.differences(BCQ, ("hit rate", "ndcg", "mrr"))
    gains = [{"over": other, "measure": measure, "gain": list(gain)} for (other, measure), gain in together.items()]
    rows = [
        row | {"seconds": round(seconds[row["ranker"]], 2)}
        for row in found.to_json()["rows"]
        if not seed or row["ranker"] not in counted
    ]
    return {"size": size, "rows": rows, "differences": differences(found), "together": gains}


def real_study(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """What the seeds found, together."""
    return {
        "k": K, **found[0]["size"], "steps": STEPS[name], "settings": SETTINGS[name], "seeds": len(found),
        "differences": [one["differences"] for one in found],
        "rows": [{"seed": seed} | row for seed, one in enumerate(found) for row in one["rows"]],
        "together": [{"seed": seed} | row for seed, one in enumerate(found) for row in one["together"]],
    }  # fmt: skip


def differences(found: RankerComparison) -> dict[str, Any]:
    """BCQ minus its own encoder on the same users, by kind of event and measure."""
    kinds = [row.kind for row in found.rows if row.ranker == BCQ]
    return {
        kind: {
            measure: list(found.difference(BCQ, ENCODER, measure, kind))
            for measure in ("hit rate", "ndcg", "reward", "discounted reward")
        }
        for kind in kinds
    }


def logged_visits(seed: int) -> Any:
    """A log of the editor's, with what it showed and how likely that was."""
    seen = satiation.simulate_visits(
        satiation.policy_of_histories(satiation.logging_policy()), VISITS, seed=1_000 + seed
    )
    return tl.read_interactions(
        pl.DataFrame(
            {
                "user": seen.user, "item": seen.items[seen.item - 1].astype(str), "time": seen.time,
                "event": np.array(seen.events)[seen.event - 1], "reward": seen.reward, "chance": seen.propensity,
            }
        ),
        user="user", item="item", time="time", event="event", reward="reward", session_gap=1.5, propensity="chance",
    )  # fmt: skip


def shown_first(ranker: Ranks, log: Any) -> satiation.Act:
    """A ranker as a policy that shows the first item of its list; items are known to the log by name."""
    action = np.array([satiation.ITEMS.index(str(item)) for item in log.items])
    number = np.append(0, np.argsort(action) + 1)
    names = HistoryNames(log.items, satiation.EVENTS)

    def act(histories: Any, events: Any) -> Any:
        items, _ = ranker.rank(HistoryArrays(number[histories].astype(np.int32), events, names=names), 1)
        return np.eye(len(satiation.ITEMS))[action[items[:, 0] - 1]]

    return act


def satiation_seed(name: str, seed: int) -> dict[str, float]:
    """Clicks a visit of everything learnt from a log of the seed's own."""
    log = logged_visits(seed)
    rankers: dict[str, Ranks] = {"popularity": Popularity.of(log), "last-item Markov": Markov.of(log)}
    for learn in LEARNT:
        rankers |= learn(log, name, seed)
    found = {
        called: float(satiation.simulate_visits(shown_first(ranker, log), PLAYED, seed=2_000 + seed).returns.mean())
        for called, ranker in rankers.items()
    }
    print(f"{name}, seed {seed}: { {called: round(value, 2) for called, value in found.items()} }", flush=True)
    return found


def satiation_study(name: str, found: list[dict[str, float]]) -> dict[str, Any]:
    """What the seeds found, together and beside exact values."""
    problem, editor = satiation.satiation(), satiation.logging_policy()
    exact = {
        "logger": satiation.exact_value(editor),
        "its commonest choice": satiation.exact_value(editor.argmax(1)),
        "likeliest click": satiation.exact_value(satiation.clicks().argmax(1)),
        **{f"best within support {t:g}": problem.optimal(allowed=satiation.support(editor, t))[0] for t in THRESHOLDS},
        "optimal": problem.optimal()[0],
    }
    values = {called: [one[called] for one in found] for called in found[0]}
    several = len(found) > 1
    return {
        "visits": VISITS, "played": PLAYED, "steps": STEPS[name], "settings": SETTINGS[name], "seeds": len(found),
        "exact": exact, "values": values,
        "intervals": {called: list(seed_interval(each)) for called, each in values.items()} if several else {},
        "differences": beside(values, exact) if several and BCQ in values else {},
    }  # fmt: skip


def beside(found: Mapping[str, list[float]], exact: Mapping[str, float]) -> dict[str, list[float]]:
    """BCQ minus what else was learnt from the same log, minus the behaviour policy, and over the best within its
    support.
    """
    bcq = np.asarray(found[BCQ])
    minus = {f"minus {name}": bcq - np.asarray(each) for name, each in found.items() if name != BCQ}
    best = exact[f"best within support {SETTINGS['satiation']['threshold']:g}"]
    several = minus | {"minus logger": bcq - exact["logger"], "share of best within support": bcq / best}
    return {name: list(seed_interval(each.tolist())) for name, each in several.items()}


def supported(ranker: Any, log: Any, seed: int) -> float:
    """The share of a policy's candidates, in states of its log, that the editor shows often enough."""
    within = satiation.support(satiation.logging_policy(), SETTINGS["satiation"]["threshold"])
    rows = np.random.default_rng(seed).choice(len(log), STATES, replace=False)
    action = np.array([satiation.ITEMS.index(str(item)) for item in log.items])
    kind = np.array([0, *(satiation.EVENTS.index(event) + 1 for event in log.events)])
    seen = log.histories(rows, 300)
    state = satiation.state_of(np.append(0, action + 1)[seen.items], kind[seen.events])
    allowed = np.ones((STATES, len(action) + 1), bool)
    allowed[:, 0] = False
    found = ranker.find(seen, 1, allowed)
    items, first = action[np.maximum(found.items, 1) - 1], found.first & np.isfinite(found.likelihood)
    return float((np.take_along_axis(within[state], items, axis=1) & first).sum() / first.sum())


def generators_seed(seed: int) -> list[dict[str, Any]]:
    """Clicks a visit with each generator, and its candidates; one encoder, learnt before, for all of them."""
    log, (before, steps) = logged_visits(seed), GENERATOR_STEPS
    settings = {**SETTINGS["satiation"], **SMALLER}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        encoder = tl.RecommenderBCQ(**{**settings, "pretrain_share": 1.0, "q_weight": None})
        tl.fit(encoder, log, steps=before, seeds=[seed], eval_every=before, out=f"{folder}/encoder", progress=False)
        for name, changes in GENERATORS.items():
            algorithm = tl.RecommenderBCQ(**{**settings, "pretrain_share": 0.0, **changes})
            run = tl.fit(
                algorithm, log, steps=steps, seeds=[seed], eval_every=steps, progress=False,
                warm_start={"next_item": f"{folder}/encoder"},
            )  # fmt: skip
            ranker, count = run.policy().ranker(), GENERATOR_PLAYED
            clicks = satiation.simulate_visits(shown_first(ranker, log), count, seed=2_000 + seed).returns.mean()
            rows.append({"seed": seed, "generator": name, "clicks": float(clicks)})
            rows[-1]["supported candidates"] = supported(ranker, log, seed)
            print(rows[-1], flush=True)
    return rows


def generators_study(rows: list[dict[str, Any]]) -> None:
    """Keep what the seeds found of the generators: means with 95% intervals over seeds, and the difference."""
    measures = ("clicks", "supported candidates")
    of = {
        name: {one: [row[one] for row in rows if row["generator"] == name] for one in measures} for name in GENERATORS
    }
    minus = [own - other for own, other in zip(of["vae"]["clicks"], of["likelihood"]["clicks"], strict=True)]
    content = {
        "visits": VISITS, "played": GENERATOR_PLAYED, "states": STATES, "steps": GENERATOR_STEPS, "seeds": SEEDS,
        "optimal": satiation.satiation().optimal()[0], "settings": {**SETTINGS["satiation"], **SMALLER},
        "generators": GENERATORS, "clicks minus likelihood": {"vae": seed_interval(minus)},
        "intervals": {name: {one: seed_interval(each) for one, each in some.items()} for name, some in of.items()},
    }  # fmt: skip
    keep("recommender_generators", COMMAND.format("generators"), content, rows=rows)


def of_log(name: str) -> dict[str, Any]:
    """What the seeds found of one of `entree`, `online_retail`, `open_bandit`, `satiation`, kept."""
    one, together = (satiation_seed, satiation_study) if name == "satiation" else (real_seed, real_study)
    found = together(name, [one(name, seed) for seed in range(SEEDS)])
    several = {part: found.pop(part) for part in ("rows", "together") if part in found}
    keep(f"recommender_{name}", COMMAND.format(name), found, **several)
    return found | several


def study(
    *logs: Literal["entree", "online_retail", "open_bandit", "satiation", "generators"], workers: int = 2
) -> None:
    """Every one of these, or all but `generators`, which goes on where it was stopped."""
    for name in logs or (*REAL, "satiation"):
        if name == "generators":
            calls = [(generators_seed, seed) for seed in range(SEEDS)]
            found = spread(calls, scratch("recommender-generators"), workers)
            generators_study([row for rows in found for row in rows])
        else:
            of_log(name)
