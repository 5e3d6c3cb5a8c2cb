"""Programs are compiled once for all tests of judging."""

from tests.training.logs import cache, log, origin, saved

__all__ = ["cache", "log", "origin", "saved"]
