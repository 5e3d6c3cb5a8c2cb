"""The command line, a table and a run, as the tests of the commands have them."""

from tests.cli.conftest import clinic, here, run, table, tidelog
from tests.training.logs import log, saved

__all__ = ["clinic", "here", "log", "run", "saved", "table", "tidelog"]
