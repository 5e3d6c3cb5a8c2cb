"""One log for all tests of training: programs are compiled for its shapes once."""

from tests.training.logs import log, origin, saved

__all__ = ["log", "origin", "saved"]
