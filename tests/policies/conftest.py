"""The log of the training tests, whose programs are compiled already if both run, and a policy that learnt from it."""

import pytest

from tests.ope.conftest import few_updates
from tests.training.logs import log, origin, saved
from tests.training.runs import bc, begin, finish

__all__ = ["few_updates", "log", "origin", "saved"]


@pytest.fixture(scope="session")
def trained(log):
    """A cloned policy with numbers and one category as observation, and six named actions."""
    return finish(begin(bc(learning_rate=0.1), log)).policy()
