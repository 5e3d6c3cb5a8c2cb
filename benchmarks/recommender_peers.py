"""ALS and BM25 item-kNN of the package `implicit` on the two real logs, on the users of `benchmarks/recommender.py`.

`python -m benchmarks.recommender_peers [entree] [online_retail]` needs `pip install implicit` (0.7.3), which is no part
of tidelog; with OPENBLAS_NUM_THREADS=1 its threads do not disturb each other. Settings of both are chosen by ndcg on
the earlier cut of the log (`EARLIER` in `benchmarks/recommender.py`), with a seed that is not reported. A user's vector
is computed from the whole history of the case, as for the other rankers. A difference is recommender BCQ of the kept
study minus the peer, seed by seed: a 95% interval over seeds holds the users fixed.
"""

import itertools
import sys
import time
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.keep import keep, kept, seed_interval
from benchmarks.recommender import BCQ, EARLIER, REAL, K
from tidelog.recommend.metrics.baselines import Popularity
from tidelog.recommend.metrics.ranked_lists import compare

COMMAND = "OPENBLAS_NUM_THREADS=1 python -m benchmarks.recommender_peers {}"
SEEDS, CHOICE_SEED = 5, 100
MEASURES = ("hit rate", "ndcg", "mrr")
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "ALS": {"factors": (64, 256), "regularization": (0.01, 1.0), "alpha": (1.0, 10.0)},
    "BM25 item-kNN": {"K": (20, 200), "B": (0.2, 0.8)},
}


class Peer:
    """A fitted model of `implicit` as a ranker of item indices."""

    def __init__(self, model: Any, size: int) -> None:
        self._model, self._size = model, size

    def rank(self, histories: Any, events: Any, k: int, allowed: Any = None, users: Any = None) -> Any:
        """Return items and scores [B, k] for histories [B, H]; every item is allowed."""
        rows, places = np.nonzero(histories)
        taken = (rows, histories[rows, places] - 1)
        counts = sparse.csr_matrix(
            (np.ones(len(rows), np.float32), taken), shape=(len(histories), self._size)
        )  # doubles are summed
        items, scores = self._model.recommend(
            np.arange(len(histories)), counts, N=k, filter_already_liked_items=False, recalculate_user=True
        )
        return (np.asarray(items) + 1).astype(np.int32), np.asarray(scores, np.float32)


def fitted(peer: str, settings: dict[str, Any], log: Any, seed: int) -> Peer:
    """A peer with these settings on a whole log."""
    from implicit.als import AlternatingLeastSquares
    from implicit.nearest_neighbours import BM25Recommender

    shape = (len(log.users), len(log.items))
    counts = sparse.csr_matrix((np.ones(len(log), np.float32), (log.user, log.item - 1)), shape=shape)
    if peer == "ALS":
        model = AlternatingLeastSquares(iterations=15, random_state=seed, num_threads=2, **settings)
    else:
        model = BM25Recommender(num_threads=2, **settings)
    model.fit(counts, show_progress=False)
    return Peer(model, len(log.items))


def scores(peer: str, settings: dict[str, Any], data: tuple[Any, Any, Any], seed: int) -> dict[str, float]:
    """The measures of a peer on all cases, and the seconds of its fit."""
    log, cases, _ = data
    begun = time.perf_counter()
    ranker = fitted(peer, settings, log, seed)
    seconds = time.perf_counter() - begun
    row = compare({peer: ranker}, cases, Popularity.of(log).counts, K).row(peer)
    return {measure: row.scores[measure].estimate for measure in MEASURES} | {"seconds": seconds}


def study(name: str) -> None:
    """Choose the settings of each peer, measure it with all seeds beside the kept study, and keep the result."""
    earlier, data = REAL[name](earlier=True), REAL[name]()
    ours = [
        row["scores"] for row in kept(f"recommender_{name}")["rows"] if (row["ranker"], row["kind"]) == (BCQ, "all")
    ]
    rows, gains, chosen = [], [], {}
    for peer, grid in GRIDS.items():
        tried = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        found = [scores(peer, settings, earlier, CHOICE_SEED)["ndcg"] for settings in tried]
        chosen[peer] = tried[int(np.argmax(found))]
        print(f"{name}, {peer}: {chosen[peer]}, ndcg {max(found):.4f} before {EARLIER[name]} of {found}", flush=True)
        seeds = range(SEEDS if peer == "ALS" else 1)  # BM25 has no random numbers
        each = [scores(peer, chosen[peer], data, seed) for seed in seeds]
        rows += [{"ranker": peer, "seed": seed} | one for seed, one in zip(seeds, each, strict=True)]
        for measure in MEASURES:
            pairs = zip(ours, itertools.cycle(each), strict=False)
            gain = seed_interval([mine[measure][0] - other[measure] for mine, other in pairs])
            gains.append({"over": peer, "measure": measure, "gain": list(gain)})
            print(f"{name}, {BCQ} minus {peer}, {measure}: {gain}", flush=True)
    facts = {
        "k": K,
        "chosen": chosen,
        "grids": {peer: dict(grid) for peer, grid in GRIDS.items()},
        "cases": len(data[1]),
    }
    keep(f"recommender_peers_{name}", COMMAND.format(name), facts, rows=rows, gains=gains)


if __name__ == "__main__":
    for log_name in sys.argv[1:] or REAL:
        study(log_name)
