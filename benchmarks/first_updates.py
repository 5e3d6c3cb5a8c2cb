"""100 updates in a new process, for timing from outside: `python -m benchmarks first_updates ENTRY`."""

from __future__ import annotations

import sys

from tidelog._machine import import_without_gc

if __name__ == "__main__":
    fit = import_without_gc("tidelog.training.fit").fit  # as `tl.fit` is imported
    speed = import_without_gc("benchmarks.speed")
    algorithm = speed.entry_of(sys.argv[1])
    fit(algorithm, speed.log_for(algorithm), 100, progress=False)
