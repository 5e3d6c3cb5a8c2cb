"""The logs of the tests of training."""

from tests.training.logs import log, origin, saved

__all__ = ["log", "origin", "saved"]
