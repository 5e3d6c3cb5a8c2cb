"""One log for all tests of training: programs are compiled for its shapes once."""

from tests.training.logs import cache, log, origin, saved

__all__ = ["cache", "log", "origin", "saved"]
