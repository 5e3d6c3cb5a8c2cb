"""The log of the tests of training, whose programs are compiled already when both run."""

from tests.training.logs import log, origin, saved

__all__ = ["log", "origin", "saved"]
