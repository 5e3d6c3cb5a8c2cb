"""`python -m tidelog.bench.first ENTRY`: run 100 updates in a new process, for timing from outside."""

from __future__ import annotations

import sys

from tidelog.bench.entries import entry_of
from tidelog.bench.speed import synthetic_log
from tidelog.training.fit import fit

if __name__ == "__main__":
    entry = entry_of(sys.argv[1])
    fit(entry.algorithm, synthetic_log(entry.discrete), 100, progress=False)
