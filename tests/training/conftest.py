"""One log for all tests of training: programs are compiled for its shapes once; and a run that was stopped."""

import pytest

from tests.training.logs import log, origin, saved
from tests.training.runs import LOSS, bc, begin, chunks_of, stop_at

__all__ = ["log", "origin", "saved"]


@pytest.fixture
def halted(origin, tmp_path, monkeypatch):
    """A run folder with checkpoints at 0, 7 and 14, where the run was stopped."""
    chunks_of(7, monkeypatch)
    stop_at(begin(bc(), origin, tmp_path / "run", best_metric=LOSS, save_seconds=0.0), 14)
    return tmp_path / "run"
