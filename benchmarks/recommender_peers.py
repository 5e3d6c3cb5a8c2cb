"""Rankers of other packages on the real logs, on the users of `benchmarks/recommender.py`.

`python -m benchmarks recommender_peers [entree] [online_retail] [open_bandit] --peers implicit` is ALS and BM25
item-kNN of `implicit` (0.7.3), which is no part of tidelog and must be installed; with OPENBLAS_NUM_THREADS=1 its
threads do not disturb each other. `--peers rectools --peer-python PYTHON` is SASRec of RecTools, where PYTHON is that
of an environment for `peer_scripts/recommender_rectools.py`. Settings are chosen by ndcg on the earlier cut of the log
(`EARLIER` in `benchmarks/recommender.py`), with a seed that is not reported. A user's lists are computed from the whole
history of the case, as for the other rankers; SASRec reads its latest items and no kinds of events. A difference is
recommender BCQ of the kept study minus the peer, seed by seed: a 95% interval over seeds holds the users fixed.
"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from scipy import sparse

from benchmarks.keep import keep, kept, known, seed_interval
from benchmarks.recommender import BCQ, EARLIER, REAL, K
from tidelog.recommend.evaluate import Popularity, compare

COMMAND = "OPENBLAS_NUM_THREADS=1 python -m benchmarks recommender_peers {} --peers implicit"
SEEDS, CHOICE_SEED = 5, 100
MEASURES = ("hit rate", "ndcg", "mrr")
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "ALS": {"factors": (64, 256), "regularization": (0.01, 1.0), "alpha": (1.0, 10.0)},
    "BM25 item-kNN": {"K": (20, 200), "B": (0.2, 0.8)},
}
# everything else is RecTools' default: 2 blocks, 4 heads, dropout 0.2, softmax over all items, 1e-3; its 256 factors
# would take hours a seed on two cores
SASREC: dict[str, dict[str, tuple[Any, ...]]] = {
    "entree": {"n_factors": (64,), "session_max_len": (15,), "batch_size": (512,)},
    "online_retail": {"n_factors": (64,), "session_max_len": (50,), "batch_size": (128,)},
    "open_bandit": {"n_factors": (64,), "session_max_len": (10,), "batch_size": (128,)},
}
BASKETS = ("online_retail",)  # logs with many items at one time
EPOCHS = {"entree": (5, 10, 20, 40), "online_retail": (5, 10, 20), "open_bandit": (5, 10, 20, 40, 80)}
SASREC_SCRIPT = Path(__file__).with_name("peer_scripts") / "recommender_rectools.py"


class Peer:
    """A fitted model of `implicit` as a ranker of item indices."""

    def __init__(self, model: Any, size: int) -> None:
        self._model, self._size = model, size

    def rank(self, histories: Any, k: int, allowed: Any = None) -> Any:
        """Return items and scores [B, k] for histories; every item is allowed."""
        items = histories.items
        rows, places = np.nonzero(items)
        taken = (rows, items[rows, places] - 1)
        counts = sparse.csr_matrix(
            (np.ones(len(rows), np.float32), taken), shape=(len(items), self._size)
        )  # doubles are summed
        items, scores = self._model.recommend(
            np.arange(len(items)), counts, N=k, filter_already_liked_items=False, recalculate_user=True
        )
        return (np.asarray(items) + 1).astype(np.int32), np.asarray(scores, np.float32)


def fitted(peer: str, settings: dict[str, Any], log: Any, seed: int) -> Any:
    """A model of `implicit` with these settings on a whole log."""
    from implicit.als import AlternatingLeastSquares
    from implicit.nearest_neighbours import BM25Recommender

    shape = (len(log.users), len(log.items))
    counts = sparse.csr_matrix((np.ones(len(log), np.float32), (log.user, log.item - 1)), shape=shape)
    if peer == "ALS":
        model = AlternatingLeastSquares(iterations=15, random_state=seed, num_threads=2, **settings)
    else:
        model = BM25Recommender(num_threads=2, **settings)
    model.fit(counts, show_progress=False)
    return model


def scores(peer: str, settings: dict[str, Any], data: tuple[Any, Any, Any], seed: int) -> dict[str, float]:
    """The measures of a peer on all cases, and the seconds of its fit."""
    log, cases, _ = data
    begun = time.perf_counter()
    ranker = Peer(fitted(peer, settings, log, seed), len(log.items))
    seconds = time.perf_counter() - begun
    row = compare({peer: ranker}, cases, Popularity.of(log).counts, K).row(peer)
    return {measure: row.scores[measure].estimate for measure in MEASURES} | {"seconds": seconds}


class Lists:
    """Lists of a peer as a ranker: one for every history."""

    def __init__(self, histories: Any, lists: Any) -> None:
        self._lists = {
            history.tobytes(): row for history, row in zip(np.asarray(histories, np.int32), lists, strict=True)
        }

    def rank(self, histories: Any, k: int, allowed: Any = None) -> Any:
        """Return items and scores [B, k] for histories."""
        items = np.stack([self._lists[history.tobytes()][:k] for history in np.asarray(histories.items, np.int32)])
        return items, np.broadcast_to(-np.arange(k, dtype=np.float32), items.shape)


def sasrec(
    python: str, settings: dict[str, Any], epochs: Any, data: tuple[Any, Any, Any], seed: int
) -> list[dict[str, float]]:
    """The measures of SASRec on all cases after each number of epochs, and the processor seconds until then."""
    log, cases, _ = data
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "arrays.npz", Path(folder) / "lists.npz"
        words = json.dumps({**settings, "epochs": list(epochs), "seed": seed})
        np.savez(source, user=log.user, item=log.item, histories=cases.histories.items, settings=words)
        subprocess.run([python, str(SASREC_SCRIPT), str(source), str(target)], check=True, stderr=subprocess.DEVNULL)
        found = np.load(target)
    counts, measured = Popularity.of(log).counts, []
    for lists, seconds in zip(found["lists"], found["seconds"], strict=True):
        row = compare({"SASRec": Lists(cases.histories.items, lists)}, cases, counts, K).row("SASRec")
        measured.append({one: row.scores[one].estimate for one in MEASURES} | {"seconds": float(seconds)})
    return measured


def ours(name: str) -> list[dict[str, Any]]:
    """The measures of recommender BCQ in the kept study, seed by seed."""
    rows = kept(f"recommender_{name}")["rows"]
    return [row["scores"] for row in rows if (row["ranker"], row["kind"]) == (BCQ, "all")]


def gains_over(name: str, peer: str, each: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Recommender BCQ minus a peer, by measure; a peer without random numbers has one row."""
    gains = []
    for measure in MEASURES:
        pairs = zip(ours(name), itertools.cycle(each) if len(each) == 1 else each, strict=False)
        gain = seed_interval([mine[measure][0] - other[measure] for mine, other in pairs])
        gains.append({"over": peer, "measure": measure, "gain": list(gain)})
        print(f"{name}, {BCQ} minus {peer}, {measure}: {gain}", flush=True)
    return gains


def combinations(grid: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Every combination of the values of a grid."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def in_sequence(name: str, seed: int, earlier: bool = False) -> tuple[Any, Any, Any]:
    """A log and its cases for a model of sequences: the items of a basket in random order, not in that of their codes.

    A sequence of codes can be learnt, and says nothing about what is bought next.
    """
    return REAL[name](earlier, seed) if name in BASKETS else REAL[name](earlier)


def sasrec_study(name: str, python: str) -> None:
    """Choose SASRec's size and epochs, and measure it with all seeds beside the kept study.

    What is found is kept after each training, of which some take an hour: a stopped study goes on there.
    """
    file = f"recommender_rectools_{name}"
    found = {"tried": [], "rows": []} | known(file)
    tried, rows = found["tried"], found["rows"]

    def keep_all(**facts: Any) -> None:
        facts |= {"k": K, "versions": {"RecTools": "0.19.0", "torch": "2.13.0"}, "tried": tried}
        command = f"python -m benchmarks recommender_peers {name} --peers rectools --peer-python PYTHON"
        keep(file, command, facts, rows=rows)

    for settings in combinations(SASREC[name]):
        if not any(one["settings"] == settings for one in tried):
            each = sasrec(python, settings, EPOCHS[name], in_sequence(name, CHOICE_SEED, earlier=True), CHOICE_SEED)
            tried += [{"settings": settings, "epochs": n} | row for n, row in zip(EPOCHS[name], each, strict=True)]
            keep_all()
    best = max(tried, key=lambda one: one["ndcg"])
    chosen = {**best["settings"], "epochs": best["epochs"]}
    for seed in range(len(rows), min(SEEDS, len(ours(name)))):
        data = in_sequence(name, seed)
        rows.append(
            {"ranker": "SASRec", "seed": seed} | sasrec(python, best["settings"], [best["epochs"]], data, seed)[0]
        )
        keep_all(chosen=chosen)
    keep_all(chosen=chosen, gains=gains_over(name, "SASRec", rows))


def implicit_study(name: str) -> None:
    """Choose the settings of each peer, measure it with all seeds beside the kept study, and keep the result."""
    earlier, data = REAL[name](earlier=True), REAL[name]()
    rows, gains, chosen = [], [], {}
    for peer, grid in GRIDS.items():
        tried = combinations(grid)
        found = [scores(peer, settings, earlier, CHOICE_SEED)["ndcg"] for settings in tried]
        chosen[peer] = tried[int(np.argmax(found))]
        print(f"{name}, {peer}: {chosen[peer]}, ndcg {max(found):.4f} before {EARLIER[name]} of {found}", flush=True)
        seeds = range(SEEDS if peer == "ALS" else 1)  # BM25 has no random numbers
        each = [scores(peer, chosen[peer], data, seed) for seed in seeds]
        rows += [{"ranker": peer, "seed": seed} | one for seed, one in zip(seeds, each, strict=True)]
        gains += gains_over(name, peer, each)
    facts = {
        "k": K,
        "chosen": chosen,
        "grids": {peer: dict(grid) for peer, grid in GRIDS.items()},
        "cases": len(data[1]),
    }
    keep(f"recommender_peers_{name}", COMMAND.format(name), facts, rows=rows, gains=gains)


def study(
    *logs: str, peers: Sequence[Literal["implicit", "rectools"]] = ("implicit",), peer_python: str = sys.executable
) -> None:
    """Ask these packages for lists on these logs, or all."""
    for name in logs or REAL:
        if "implicit" in peers:
            implicit_study(name)
        if "rectools" in peers:
            sasrec_study(name, peer_python)
