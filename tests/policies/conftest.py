"""The log of the training tests; its programs are compiled already when both run."""

from tests.training.logs import log, origin, saved

__all__ = ["log", "origin", "saved"]
