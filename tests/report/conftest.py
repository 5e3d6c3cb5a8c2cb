"""Finished runs of a few updates, trained once; every test works on copies of its own."""

import shutil

import numpy as np
import pytest

from tests.algorithms.recommenders import small
from tests.data.clicks import ROLES, clicks
from tests.training.logs import log, origin, saved
from tests.training.runs import bc, begin, finish, iql
from tidelog import Log
from tidelog.recommend.read import read_interactions

__all__ = ["log", "origin", "saved"]


@pytest.fixture(scope="session")
def trained(origin, tmp_path_factory):
    """A folder with `bc` (two seeds, an evaluator) and `iql` (a population of two temperatures)."""
    folder = tmp_path_factory.mktemp("runs")
    worth = {"worth": lambda policy: 0.5}
    finish(begin(bc(), origin, folder / "bc", seeds=2, evaluate=worth))
    finish(begin([iql(temperature=t) for t in (1.0, 3.0)], origin, folder / "iql"))
    return folder


@pytest.fixture(scope="session")
def continuous(tmp_path_factory):
    """A run on two action dimensions, with a memory, nothing held out, from a log in memory; and that log."""
    rng = np.random.default_rng(0)
    made = Log.from_arrays(
        observation=rng.normal(size=(60, 2)), action=rng.uniform(-1, 1, (60, 2)), reward=rng.normal(size=60),
        episode=np.arange(60) // 6, terminated=np.arange(60) % 6 == 5,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("continuous") / "doses"
    finish(begin(bc(recurrent_size=4, window=3), made, folder, held_out=0.0))
    return folder, made


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with a table of clicks and `run`, a recommender, which held a third of its time out."""
    folder = tmp_path_factory.mktemp("shop")
    clicks(users=30).write_csv(folder / "clicks.csv")
    log = read_interactions(folder / "clicks.csv", **ROLES, session_gap=59.0)
    finish(begin(small(q_weight=0.5), log, folder / "run", steps=6, eval_every=3, held_out=0.3))
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    """Copies of the runs `bc` and `iql`."""
    for name in ("bc", "iql"):
        shutil.copytree(trained / name, tmp_path / name)
    return tmp_path
