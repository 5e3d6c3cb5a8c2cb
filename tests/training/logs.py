"""Fixtures: a compilation cache for this session, and a small treatment log in memory, on disk and opened from it."""

import os

import pytest

from tidelog import collect
from tidelog.data.origin import read_any

EPISODES = 30


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Programs compiled in this session go where it ends, not into the user's cache; commands in a process share it."""
    before = os.environ.get("TIDELOG_CACHE")
    os.environ["TIDELOG_CACHE"] = before or str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["TIDELOG_CACHE"]


@pytest.fixture(scope="session")
def log():
    """Patients treated at random: numbers and a word are seen, six named treatments, propensities; no origin."""
    return collect("treatment", episodes=EPISODES, seed=0)


@pytest.fixture(scope="session")
def saved(log, tmp_path_factory):
    """The folder of the same log."""
    path = tmp_path_factory.mktemp("log") / "treatment.tidelog"
    log.save(path)
    return path


@pytest.fixture(scope="session")
def origin(saved):
    """The same log, which knows where it came from."""
    return read_any(saved)
