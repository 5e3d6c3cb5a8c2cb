"""Rankers of other packages on the real logs, on the users of `benchmarks/recommender.py`.

`python -m benchmarks recommender_peers [entree] [online_retail] [open_bandit] --peers implicit` is ALS and BM25
item-kNN of `implicit` (0.7.3), which is no part of tidelog and must be installed; with OPENBLAS_NUM_THREADS=1 its
threads do not disturb each other. `--peers rectools --peer-python PYTHON` is SASRec of RecTools, where PYTHON is that
of an environment for `peer_scripts/recommender_rectools.py`. The kept files have the settings, which were chosen by
ndcg on an earlier cut of the log, with a seed that is not reported (the program is in the history). A user's lists are
computed from the whole history of the case, as for the other rankers; SASRec reads its latest items and no kinds of
events. A difference is recommender BCQ of the kept study minus the peer, seed by seed: a 95% interval over seeds holds
the users fixed.
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

from benchmarks.keep import keep, kept, seed_interval
from benchmarks.recommender import BCQ, REAL, K
from benchmarks.spread import scratch, spread
from tidelog.recommend.evaluate import Popularity, compare

COMMAND = "python -m benchmarks recommender_peers {} --peers "
SEEDS, MEASURES = 5, ("hit rate", "ndcg", "mrr")
BASKETS = ("online_retail",)  # logs with many items at one time
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


def scores(peer: str, ranker: Any, data: tuple[Any, Any, Any], seconds: float) -> dict[str, float]:
    """The measures of a peer on all cases, and the seconds of its fit."""
    log, cases, _ = data
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


def sasrec(name: str, python: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """The measures of SASRec on all cases, and the processor seconds of its training.

    The items of a basket stand in random order, not in that of their codes: a sequence of codes can be learnt, and says
    nothing about what is bought next.
    """
    data = log, cases, _ = REAL[name](seed) if name in BASKETS else REAL[name]()
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "arrays.npz", Path(folder) / "lists.npz"
        words = json.dumps({**settings, "seed": seed})
        np.savez(source, user=log.user, item=log.item, histories=cases.histories.items, settings=words)
        subprocess.run([python, str(SASREC_SCRIPT), str(source), str(target)], check=True, stderr=subprocess.DEVNULL)
        found = np.load(target)
        ranker = Lists(cases.histories.items, found["lists"])
        return {"ranker": "SASRec", "seed": seed} | scores("SASRec", ranker, data, float(found["seconds"]))


def gains_over(name: str, peer: str, each: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Recommender BCQ of the kept study minus a peer, by measure; a peer without random numbers has one row."""
    rows = kept(f"recommender_{name}")["rows"]
    ours = [row["scores"] for row in rows if (row["ranker"], row["kind"]) == (BCQ, "all")]
    gains = []
    for measure in MEASURES:
        pairs = zip(ours, itertools.cycle(each) if len(each) == 1 else each, strict=False)
        gain = seed_interval([mine[measure][0] - other[measure] for mine, other in pairs])
        gains.append({"over": peer, "measure": measure, "gain": list(gain)})
        print(f"{name}, {BCQ} minus {peer}, {measure}: {gain}", flush=True)
    return gains


def sasrec_study(name: str, python: str) -> None:
    """Measure SASRec with all seeds, of which some take an hour: a stopped study goes on."""
    file = f"recommender_rectools_{name}"
    facts = {part: kept(file)[part] for part in ("k", "versions", "tried", "chosen")}
    rows = spread([(sasrec, name, python, facts["chosen"], seed) for seed in range(SEEDS)], scratch("rectools"), 1)
    facts["gains"] = gains_over(name, "SASRec", rows)
    keep(file, f"{COMMAND.format(name)}rectools --peer-python PYTHON", facts, rows=rows)


def implicit_study(name: str) -> None:
    """Measure each peer with all seeds beside the kept study, and keep the result."""
    file, data = f"recommender_peers_{name}", REAL[name]()
    facts = {part: kept(file)[part] for part in ("k", "chosen", "grids")}
    rows, gains = [], []
    for peer, settings in facts["chosen"].items():
        each = []
        for seed in range(SEEDS if peer == "ALS" else 1):  # BM25 has no random numbers
            begun = time.perf_counter()
            ranker = Peer(fitted(peer, settings, data[0], seed), len(data[0].items))
            each.append({"ranker": peer, "seed": seed} | scores(peer, ranker, data, time.perf_counter() - begun))
        rows += each
        gains += gains_over(name, peer, each)
    command = f"OPENBLAS_NUM_THREADS=1 {COMMAND.format(name)}implicit"
    keep(file, command, facts | {"cases": len(data[1])}, rows=rows, gains=gains)


def study(
    *logs: str, peers: Sequence[Literal["implicit", "rectools"]] = ("implicit",), peer_python: str = sys.executable
) -> None:
    """Ask these packages for lists on these logs, or all."""
    for name in logs or REAL:
        if "implicit" in peers:
            implicit_study(name)
        if "rectools" in peers:
            sasrec_study(name, peer_python)
