"""Programs are compiled once for all tests of judging."""

import pytest

from tests.training.logs import log, origin, saved
from tidelog.ope import networks, propensities

__all__ = ["log", "origin", "saved"]


@pytest.fixture
def quick(monkeypatch):
    """Hardly any updates, where it is not about what networks find."""
    for module in (networks, propensities):
        monkeypatch.setattr(module, "FEWEST", 60)
        monkeypatch.setattr(module, "MOST", 60)


@pytest.fixture
def few_updates(monkeypatch):
    """A third of the updates of networks, where it is not about how near they come."""
    for module in (networks, propensities):
        monkeypatch.setattr(module, "FEWEST", module.FEWEST // 3)
