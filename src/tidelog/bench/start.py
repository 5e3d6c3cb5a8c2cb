"""100 updates in a new process, for timing from outside: `python -m tidelog.bench.start ENTRY`."""

from __future__ import annotations

import sys

from tidelog.garbage import import_once

if __name__ == "__main__":
    fit, speed = import_once("tidelog.training.fit").fit, import_once("tidelog.bench.speed")  # as `tl.fit` imports them
    entry = speed.entry_of(sys.argv[1])
    fit(entry.algorithm, speed.synthetic_log(entry.discrete), 100, progress=False)
