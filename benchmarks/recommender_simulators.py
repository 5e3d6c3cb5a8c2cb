"""Rankers of other packages, and rules that count, in the two simulators of which the best value is known.

`python -m benchmarks.recommender_simulators --peer-python PYTHON`: ALS and BM25 item-kNN of `implicit` (0.7.3, which
must be installed beside tidelog), and SASRec of RecTools, where PYTHON is that of an environment for
`benchmarks/recommender_rectools.py`. They learn from the clicks of the same logs as recommender BCQ in
`benchmarks/recommender.py` and `benchmarks/recommender_delays.py`, and the first item of their list is shown in visits
of the same random numbers, so a difference is taken seed by seed. A user without a click gets the item that is clicked
most. Settings, and whether a clicked item may be shown again, are those with most clicks on simulator seed 100.

These packages read what was clicked, not what was shown in vain: between two clicks they show the same item.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from benchmarks.keep import RESULTS, keep, kept, seed_interval
from benchmarks.recommender import BCQ, PLAYED, baselines, logged_visits, shown_first
from benchmarks.recommender_delays import DELAYS, EVENTS
from benchmarks.recommender_delays import clicks as clicks_of_delay
from benchmarks.recommender_delays import logged as logged_delay
from benchmarks.recommender_peers import SASREC_SCRIPT, combinations, fitted
from tidelog.envs import satiation

COMMAND = "OPENBLAS_NUM_THREADS=1 python -m benchmarks.recommender_simulators --peer-python PYTHON"
SEEDS, CHOICE_SEED = 5, 100
AGAIN = (True, False)  # may a clicked item be shown again?
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "ALS": {"factors": (2, 4, 8), "regularization": (0.01, 1.0), "alpha": (1.0, 10.0)},
    "BM25 item-kNN": {"K": (3, 12), "B": (0.2, 0.8)},
}
SASREC: dict[str, Any] = {"n_factors": 64, "session_max_len": 25, "batch_size": 128}
EPOCHS = (2, 5, 10)


class World(NamedTuple):
    """A simulator: a log by its seed, and the clicks of a visit where a ranker's first item is shown."""

    logged: Callable[[int], Any]
    clicks: Callable[[Any, Any, int], float]  # ranker, log, seed


def clicks_of_satiation(ranker: Any, log: Any, seed: int) -> float:
    """The clicks of a visit, as `benchmarks/recommender.py` counts them."""
    seen = satiation.simulate_visits(shown_first(ranker, log), PLAYED, seed=2_000 + seed)
    return float(seen.returns.mean())


def worlds() -> dict[str, World]:
    """Both simulators, the second once for each delay of the cost."""
    found = {"satiation": World(logged_visits, clicks_of_satiation)}
    for delay in DELAYS:
        found[world_of(delay)] = World(partial(logged_delay, delay), partial(clicks_of_delay, delay))
    return found


Best = Callable[[list[tuple[int, ...]], bool], list[int]]  # histories of clicks, may they be shown again? -> items or 0


class OfClicks:
    """A ranker of clicked items as a ranker of histories; each history of clicks is asked once."""

    def __init__(self, best: Best, log: Any, again: bool) -> None:
        self._best, self._again, self._clicked = best, again, log.events.index(EVENTS[1]) + 1
        taken = np.bincount(log.item[log.event == self._clicked], minlength=len(log.items) + 1)
        self._commonest = int(taken.argmax())
        self._known: dict[tuple[int, ...], int] = {(): self._commonest}

    def rank(self, histories: Any, k: int, allowed: Any = None) -> Any:
        """Return the first item [B, 1] for histories, and no scores."""
        rows = [tuple(row[kind == self._clicked].tolist()) for row, kind in zip(*histories[:2], strict=True)]
        new = sorted(set(rows) - self._known.keys())
        if new:
            items = self._best(new, self._again)
            self._known |= {row: item or self._commonest for row, item in zip(new, items, strict=True)}
        found = np.array([self._known[row] for row in rows], np.int32)[:, None]
        return found, np.zeros(found.shape, np.float32)


def implicit_best(model: Any, size: int) -> Best:
    """A fitted model of `implicit`."""

    def best(histories: list[tuple[int, ...]], again: bool) -> list[int]:
        counts = np.stack([np.bincount(np.array(row) - 1, minlength=size) for row in histories]).astype(np.float32)
        items, scores = model.recommend(
            np.arange(len(counts)),
            sparse.csr_matrix(counts),
            N=1,
            filter_already_liked_items=not again,
            recalculate_user=True,
        )
        taken = counts[np.arange(len(counts)), items[:, 0]] > 0 if not again else np.zeros(len(counts), bool)
        known = (items[:, 0] >= 0) & (scores[:, 0] > np.finfo(np.float32).min) & ~taken
        return [int(item) + 1 if one else 0 for item, one in zip(items[:, 0], known, strict=True)]

    return best


class SASRec:
    """SASRec of RecTools in a process of its own, trained as long as it is told and asked by lines of JSON."""

    def __init__(self, python: str, log: Any, seed: int) -> None:
        self._folder = TemporaryDirectory()
        source = Path(self._folder.name) / "arrays.npz"
        np.savez(source, user=log.user, item=log.item, settings=json.dumps({**SASREC, "seed": seed}))
        self._process = subprocess.Popen(
            [python, str(SASREC_SCRIPT), str(source)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def _ask(self, **question: Any) -> Any:
        into, out = self._process.stdin, self._process.stdout
        if into is None or out is None:
            raise SystemExit("SASRec has no pipes")
        print(json.dumps(question), file=into, flush=True)
        for line in out:
            if line.startswith("{"):  # else what its libraries print
                return json.loads(line)["answer"]
        raise SystemExit(f"SASRec stopped: exit code {self._process.wait()}")

    def train(self, until: int) -> float:
        """Train until this number of epochs; return the processor seconds until then."""
        return float(self._ask(until=until))

    def best(self, histories: list[tuple[int, ...]], again: bool) -> list[int]:
        """The first item of each list, 0 where there is none."""
        return list(self._ask(histories=histories, again=again))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def clicked(log: Any) -> Any:
    """The clicks of a log."""
    return log.select(np.flatnonzero(log.event == log.events.index(EVENTS[1]) + 1))


def implicit_tried(world: World, peer: str) -> list[dict[str, Any]]:
    """The clicks of every combination of settings, on the seed that is not reported."""
    log, tried = world.logged(CHOICE_SEED), []
    for settings in combinations(GRIDS[peer]):
        best = implicit_best(fitted(peer, settings, clicked(log), CHOICE_SEED), len(log.items))
        for again in AGAIN:
            found = world.clicks(OfClicks(best, log, again), log, CHOICE_SEED)
            tried.append({"settings": settings, "again": again, "clicks": found})
    return tried


def implicit_seed(world: World, peer: str, chosen: dict[str, Any], seed: int) -> dict[str, float]:
    """The clicks of a peer with the chosen settings, and the seconds of its fit."""
    log = world.logged(seed)
    begun = time.perf_counter()
    model = fitted(peer, chosen["settings"], clicked(log), seed)
    seconds = time.perf_counter() - begun
    ranker = OfClicks(implicit_best(model, len(log.items)), log, chosen["again"])
    return {"clicks": world.clicks(ranker, log, seed), "seconds": seconds}


def sasrec_tried(world: World, python: str) -> list[dict[str, Any]]:
    """The clicks after each number of epochs, on the seed that is not reported."""
    log, tried = world.logged(CHOICE_SEED), []
    with SASRec(python, clicked(log), CHOICE_SEED) as model:
        for epochs in EPOCHS:
            model.train(epochs)
            for again in AGAIN:
                found = world.clicks(OfClicks(model.best, log, again), log, CHOICE_SEED)
                tried.append({"settings": {**SASREC, "epochs": epochs}, "again": again, "clicks": found})
    return tried


def sasrec_seed(world: World, python: str, chosen: dict[str, Any], seed: int) -> dict[str, float]:
    """The clicks of SASRec with the chosen settings, and the processor seconds of its training."""
    log = world.logged(seed)
    with SASRec(python, clicked(log), seed) as model:
        seconds = model.train(chosen["settings"]["epochs"])
        return {"clicks": world.clicks(OfClicks(model.best, log, chosen["again"]), log, seed), "seconds": seconds}


def counted(world: World, seed: int) -> list[dict[str, Any]]:
    """The clicks of the rules that count."""
    log, rows = world.logged(seed), []
    for fit in baselines(by_event=True):
        begun = time.process_time()
        for name, ranker in fit(log).items():
            seconds = time.process_time() - begun
            rows.append({"ranker": name, "seed": seed, "clicks": world.clicks(ranker, log, seed), "seconds": seconds})
    return rows


def ours(name: str) -> list[float]:
    """The clicks of recommender BCQ in the kept studies, seed by seed, with the weight of Q that a training chose."""
    if name == "satiation":
        return list(kept("recommender_satiation")["values"][BCQ])
    rows = kept("recommender_delays")["rows"]
    return [row["clicks"]["chosen weight"] for row in rows if world_of(row["delay"]) == name]


def world_of(delay: int) -> str:
    """The name of a simulator of delayed cost."""
    return f"cost after {delay}" if delay else "no cost"


def study(name: str, world: World, python: str) -> dict[str, Any]:
    """Every ranker in one simulator: what was tried, rows of seeds, and recommender BCQ minus each."""
    peers: dict[str, tuple[Callable[[], list[dict[str, Any]]], Callable[[dict[str, Any], int], dict[str, float]]]] = {
        peer: (partial(implicit_tried, world, peer), partial(implicit_seed, world, peer)) for peer in GRIDS
    }
    peers["SASRec"] = (partial(sasrec_tried, world, python), partial(sasrec_seed, world, python))
    mine = ours(name)
    rows = [row for seed in range(SEEDS) for row in counted(world, seed)]
    tried, chosen = {}, {}
    for peer, (tries, seeds) in peers.items():
        tried[peer] = tries()
        chosen[peer] = max(tried[peer], key=lambda one: one["clicks"])
        print(name, peer, chosen[peer], flush=True)
        rows += [{"ranker": peer, "seed": seed} | seeds(chosen[peer], seed) for seed in range(SEEDS)]
    gains = {}
    for ranker in dict.fromkeys(row["ranker"] for row in rows):
        found = [row["clicks"] for row in rows if row["ranker"] == ranker]
        gains[ranker] = list(seed_interval((np.array(mine) - found).tolist()))
        print(name, ranker, np.round(found, 2).tolist(), gains[ranker], flush=True)
    rows += [{"ranker": BCQ, "seed": seed, "clicks": clicks} for seed, clicks in enumerate(mine)]
    return {"chosen": chosen, "tried": tried, "gains": gains, "rows": rows}


def main() -> None:
    """Measure the simulators that are asked for, and keep each as it ends."""
    known = worlds()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=tuple(known), default=list(known))
    parser.add_argument("--peer-python", required=True)
    asked = parser.parse_args()
    file = "recommender_simulators"
    found = kept(file)["worlds"] if (RESULTS / f"{file}.json").exists() else {}
    for name in asked.worlds:
        found[name] = study(name, known[name], asked.peer_python)
        versions = {"implicit": "0.7.3", "RecTools": "0.19.0", "torch": "2.13.0"}
        keep(file, COMMAND, {"seeds": SEEDS, "versions": versions, "worlds": found})


if __name__ == "__main__":
    main()
