"""`python -m tidelog.bench.first ALGORITHM`: a process that takes 100 updates and ends, to be timed from outside."""

from __future__ import annotations

import sys

from tidelog.algorithms import algorithm_class
from tidelog.bench.speed import synthetic_log
from tidelog.training.fit import fit
from tidelog.types import Continuous

if __name__ == "__main__":
    algorithm = algorithm_class(sys.argv[1])
    fit(algorithm(), synthetic_log(Continuous not in algorithm.takes), 100, progress=False)
