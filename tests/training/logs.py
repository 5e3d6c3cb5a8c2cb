"""Fixtures: a small treatment log in memory, on disk and opened from it."""

import pytest

from tidelog import collect
from tidelog.data.read import read_log

EPISODES = 30


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
    return read_log(saved)
