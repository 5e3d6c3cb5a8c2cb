"""Recommenders of other libraries on the logs of `benchmarks/recommender.py`, in a virtual environment of their own.

`python -m benchmarks.recommender_peers FOLDER [--study online_retail] [--seeds 5]` makes the environment in FOLDER
(torch 2.13.0, rectools, implicit), runs this file in it for each seed, and keeps the lists' measures beside those of a
recommender BCQ that learns from the same log, all compared on the same cases. `--earlier` shows a table of the earlier
cut, where settings may be chosen, and keeps nothing.

Every model gets the whole log that our own learns from, and the history of each case as a new user's: SASRec (Kang and
McAuley 2018) with its softmax and with gBCE (Petrov and Macdonald 2023), ALS and item-kNN of `implicit`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np

K = 10
PACKAGES = ("torch==2.13.0", "rectools[torch]==0.19.0", "implicit==0.7.3")
COMMAND = "python -m benchmarks.recommender_peers FOLDER"
SEEDS = 5
EPOCHS = {"entree": 20, "online_retail": 40}  # chosen on the earlier cut of each log
LENGTHS = {"entree": 50, "online_retail": 100}
BASE = 10**7  # users of cases are counted from here on


def measure(study: str, seed: int, epochs: int, source: str, target: str) -> None:
    """Inside that environment: read a log and histories from an npz file, write lists [C, K] and seconds by model."""
    found = dict(np.load(source))
    lists, seconds = {}, {}
    for name, learn in (
        ("implicit ALS", als),
        ("implicit item-kNN", cosine),
        ("RecTools SASRec, softmax", lambda *of: sasrec(*of, epochs, "softmax")),
        ("RecTools SASRec, gBCE", lambda *of: sasrec(*of, epochs, "gBCE")),
    ):
        begin = time.perf_counter()
        lists[name] = learn(study, seed, found)
        seconds[name] = time.perf_counter() - begin
        print(f"{study}, seed {seed}: {name} {seconds[name]:.0f} s", flush=True)
    np.savez(target, **lists, seconds=np.array(list(seconds.values())))


def taken(rows: np.ndarray, items: np.ndarray, shape: tuple[int, int]) -> Any:
    """How often each row has each item, sparse."""
    from scipy import sparse

    return sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, items)), shape=shape)


def listed(model: Any, found: dict[str, np.ndarray]) -> np.ndarray:
    """The lists of a model of `implicit` for the histories of cases."""
    case, place = np.nonzero(found["history"])
    size = int(found["items"]) + 1
    profile = taken(case, found["history"][case, place], (len(found["history"]), size))
    users = np.arange(len(found["history"]))
    lists, _ = model.recommend(users, profile, K, filter_already_liked_items=False, recalculate_user=True)
    return np.where(lists == 0, found["popular"], lists)  # item 0 is none


def als(study: str, seed: int, found: dict[str, np.ndarray]) -> np.ndarray:
    """Alternating least squares of implicit feedback, with the library's settings."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(random_state=seed)
    model.fit(taken(found["user"], found["item"], (int(found["user"].max()) + 1, int(found["items"]) + 1)), False)
    return listed(model, found)


def cosine(study: str, seed: int, found: dict[str, np.ndarray]) -> np.ndarray:
    """The cosine neighbours of items, with the library's settings."""
    from implicit.nearest_neighbours import CosineRecommender

    model = CosineRecommender()
    model.fit(taken(found["user"], found["item"], (int(found["user"].max()) + 1, int(found["items"]) + 1)), False)
    return listed(model, found)


def sasrec(study: str, seed: int, found: dict[str, np.ndarray], epochs: int, loss: str) -> np.ndarray:
    """Self-attention with vectors as long as ours; a case is a new user with the case's history."""
    import pandas as pd
    import pytorch_lightning
    from rectools import Columns
    from rectools.dataset import Dataset
    from rectools.models import SASRecModel

    pytorch_lightning.seed_everything(seed, verbose=False)

    def dataset(user: np.ndarray, item: np.ndarray, order: np.ndarray) -> Any:
        when = pd.Timestamp("2000-01-01") + pd.to_timedelta(order, unit="s")
        table = {Columns.User: user, Columns.Item: item, Columns.Weight: 1.0, Columns.Datetime: when}
        return Dataset.construct(pd.DataFrame(table))

    model = SASRecModel(
        n_factors=64,
        n_heads=1,
        session_max_len=LENGTHS[study],
        epochs=epochs,
        loss=loss,
        n_negatives=1 if loss == "softmax" else 256,
        gbce_t=0.75,
        deterministic=True,
    )
    model.fit(dataset(found["user"], found["item"], np.arange(len(found["user"]))))
    case, place = np.nonzero(found["history"])
    cases = dataset(BASE + case, found["history"][case, place], place)
    users = BASE + np.arange(len(found["history"]))
    table = model.recommend(users, cases, K, filter_viewed=False)
    lists = np.tile(found["popular"], (len(users), 1))
    lists[table[Columns.User].to_numpy() - BASE, table[Columns.Rank].to_numpy() - 1] = table[Columns.Item].to_numpy()
    return lists


class Listed:
    """A ranker of lists [C, K] that were made before, by the histories [C, H] that they belong to."""

    def __init__(self, histories: np.ndarray, lists: np.ndarray) -> None:
        self._lists = {row.tobytes(): row_list for row, row_list in zip(histories, lists, strict=True)}

    def rank(
        self, histories: np.ndarray, events: np.ndarray, k: int, allowed: Any = None, users: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The known lists of these histories."""
        items = np.stack([self._lists[row.tobytes()] for row in histories])[:, :k]
        return items.astype(np.int32), np.tile(-np.arange(k, dtype=np.float32), (len(items), 1))


def peers(
    python: Path, study: str, seed: int, epochs: int, log: Any, cases: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """Rankers and seconds of every model, learnt in the environment of `python`."""
    from tidelog.recommend.metrics.baselines import Popularity

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "log.npz"), Path(folder, "lists.npz")
        np.savez(
            source, user=log.user, item=log.item, items=len(log.items), history=cases.history,
            popular=Popularity.of(log).order[:K],
        )  # fmt: skip
        script = [str(python), __file__, "--inside", study, str(seed), str(epochs), str(source), str(target)]
        subprocess.run(script, check=True)
        found = dict(np.load(target))
    seconds = dict(zip(found, found.pop("seconds").tolist(), strict=True))
    return {name: Listed(cases.history, lists) for name, lists in found.items()}, seconds


def environment(folder: Path) -> Path:
    """The interpreter of a virtual environment with the packages; it is made where it is absent."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def one_seed(python: Path, study: str, seed: int, epochs: int, earlier: bool) -> dict[str, Any]:
    """The measures of every model and of ours, with ours minus each of them on the same users."""
    from benchmarks import recommender
    from tidelog.recommend.metrics.baselines import Popularity
    from tidelog.recommend.metrics.ranked_lists import compare

    log, cases, kinds = recommender.REAL[study](earlier=earlier)
    rankers, seconds = peers(python, study, seed, epochs, log, cases)
    begin = time.perf_counter()
    rankers |= recommender.recommender_bcq(log, study, seed)
    seconds[recommender.BCQ] = time.perf_counter() - begin
    found = compare(rankers, cases, Popularity.of(log).counts, K, kinds)
    print(f"{study}, seed {seed}\n{found.text(('hit rate', 'ndcg', 'mrr', 'coverage'))}", flush=True)
    together = found.differences(recommender.BCQ, ("hit rate", "ndcg", "mrr"))
    gains = [{"over": other, "measure": measure, "gain": list(gain)} for (other, measure), gain in together.items()]
    rows = [{**row, "seconds": seconds.get(row["ranker"])} for row in found.to_json()["rows"]]
    return {"rows": rows, "together": gains}


def main() -> None:
    """Make the environment where it is absent, measure, and keep what was found."""
    from benchmarks.keep import keep

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--study", choices=tuple(EPOCHS), nargs="+", default=list(EPOCHS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--earlier", action="store_true")
    parser.add_argument("--epochs", type=int, help="of SASRec on the earlier cut")
    asked = parser.parse_args()
    if asked.epochs is not None and not asked.earlier:
        parser.error("--epochs is for choosing on the earlier cut. fix: add --earlier, or change EPOCHS")
    python = environment(asked.folder)
    for study in asked.study:
        found = [
            one_seed(python, study, seed, asked.epochs or EPOCHS[study], asked.earlier) for seed in range(asked.seeds)
        ]
        if not asked.earlier:
            rows = {name: [{"seed": seed} | row for seed, one in enumerate(found) for row in one[name]]
                    for name in ("rows", "together")}  # fmt: skip
            content = {"k": K, "epochs": EPOCHS[study], "length": LENGTHS[study], "packages": PACKAGES}
            keep(f"recommender_peers_{study}", COMMAND, {**content, "seeds": asked.seeds}, **rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
    else:
        main()
