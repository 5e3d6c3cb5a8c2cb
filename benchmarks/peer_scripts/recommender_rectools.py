"""SASRec of the package RecTools on the arrays of a file: `python recommender_rectools.py ARRAYS.npz LISTS.npz`.

It runs in an environment of its own (torch 2.13.0, RecTools 0.19.0, pytorch-lightning 2.6.6), which has no tidelog;
`benchmarks/recommender_peers.py` writes the arrays and reads the lists. In: `user`, `item` [M] in the order of time,
`histories` [C, H] items with 0 before the first, `settings` as JSON with `epochs` and `seed`; all else is RecTools'
default (2 blocks, 4 heads, dropout 0.2, softmax over all items, 1e-3). Out: `lists` [C, k], 0 where there are fewer
than k items, and the processor `seconds` of training. It has as many threads as the process may use cores.
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


def main(source: str, target: str) -> None:
    """Train and write lists."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    found = np.load(source)
    settings = json.loads(str(found["settings"]))
    epochs = settings.pop("epochs")
    pytorch_lightning.seed_everything(settings.pop("seed"))
    quiet: dict[str, Any] = {"enable_progress_bar": False, "logger": False, "enable_checkpointing": False}
    model = SASRecModel(
        **settings,
        recommend_torch_device="cpu",
        get_trainer_func=lambda **_: pytorch_lightning.Trainer(accelerator="cpu", max_epochs=1, **quiet),
    )
    begun = time.process_time()
    model.fit_partial(events(found["user"], found["item"]), min_epochs=epochs, max_epochs=epochs)
    seconds = time.process_time() - begun
    unique, place = np.unique(found["histories"], axis=0, return_inverse=True)
    rows, slots = np.nonzero(unique)
    answer = model.recommend(
        np.arange(len(unique)), events(rows, unique[rows, slots]), k=K, filter_viewed=False,
        on_unsupported_targets="ignore",
    )  # fmt: skip
    lists = np.zeros((len(unique), K), np.int32)
    lists[answer[Columns.User], answer[Columns.Rank] - 1] = answer[Columns.Item]
    np.savez(target, lists=lists[place.ravel()], seconds=seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
