"""Programs are compiled once for all tests of judging."""

from tests.training.logs import log, origin, saved

__all__ = ["log", "origin", "saved"]
