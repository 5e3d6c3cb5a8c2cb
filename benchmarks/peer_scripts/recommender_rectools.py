"""SASRec of the package RecTools on the arrays of a file: `python recommender_rectools.py ARRAYS.npz LISTS.npz`.

It runs in an environment of its own (torch 2.13.0, RecTools 0.19.0, pytorch-lightning 2.6.6), which has no tidelog;
`benchmarks/recommender_peers.py` writes the arrays and reads the lists. In: `user`, `item` [M] in the order of time,
`histories` [C, H] items with 0 before the first, `settings` as JSON with `epochs`, a rising list. Out: `lists`
[E, C, k] for each number of epochs, 0 where there are fewer than k items, and the processor `seconds` [E] of training
until then. It has as many threads as the process may use cores.
"""

import json
import os
import sys
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning
import torch
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import SASRecModel

K = 10


def events(user: Any, item: Any) -> Any:
    """A table of events as RecTools wants it; the time of an event is its place."""
    times = pd.to_datetime(np.arange(len(user)), unit="s")
    columns = {Columns.User: user, Columns.Item: item, Columns.Weight: 1.0, Columns.Datetime: times}
    return Dataset.construct(pd.DataFrame(columns))


class Trained:
    """SASRec on the events of a file, trained as long as it is told."""

    def __init__(self, found: Any, settings: dict[str, Any]) -> None:
        pytorch_lightning.seed_everything(settings.pop("seed"))
        quiet: dict[str, Any] = {"enable_progress_bar": False, "logger": False, "enable_checkpointing": False}
        self._log, self._done, self._seconds = events(found["user"], found["item"]), 0, 0.0
        self._model = SASRecModel(
            **settings,
            recommend_torch_device="cpu",
            get_trainer_func=lambda **_: pytorch_lightning.Trainer(accelerator="cpu", max_epochs=1, **quiet),
        )

    def train(self, until: int) -> float:
        """Train until this number of epochs; return the processor seconds until then."""
        begun, more = time.process_time(), until - self._done
        self._model.fit_partial(self._log, min_epochs=more, max_epochs=more)
        self._done, self._seconds = until, self._seconds + time.process_time() - begun
        return self._seconds

    def lists(self, users: Any, items: Any, size: int, k: int) -> Any:
        """Return lists [size, k] for the histories of users 0 .. size - 1, with 0 after their last item."""
        found = np.zeros((size, k), np.int32)
        answer = self._model.recommend(
            np.arange(size), events(users, items), k=k, filter_viewed=False, on_unsupported_targets="ignore"
        )
        found[answer[Columns.User], answer[Columns.Rank] - 1] = answer[Columns.Item]
        return found


def write(model: Trained, histories: Any, epochs: list[int], target: str) -> None:
    """Write lists after each number of epochs."""
    unique, place = np.unique(histories, axis=0, return_inverse=True)
    rows, slots = np.nonzero(unique)
    lists, seconds = np.zeros((len(epochs), len(unique), K), np.int32), np.zeros(len(epochs))
    for number, until in enumerate(epochs):
        seconds[number] = model.train(until)
        lists[number] = model.lists(rows, unique[rows, slots], len(unique), K)
        print(f"{until} epochs, {seconds[number]:.0f} s of processor time", flush=True)
    np.savez(target, lists=lists[:, place.ravel()], seconds=seconds)


def main(source: str, target: str) -> None:
    """Train and write lists."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    found = np.load(source)
    settings = json.loads(str(found["settings"]))
    epochs = settings.pop("epochs")
    write(Trained(found, settings), found["histories"], epochs, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
