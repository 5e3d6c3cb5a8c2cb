"""The log of the tests of training, whose programs are compiled already when both run."""

from tests.training.logs import cache, log, origin, saved

__all__ = ["cache", "log", "origin", "saved"]
