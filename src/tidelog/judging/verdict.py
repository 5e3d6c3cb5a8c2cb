"""The verdict: is a policy better than the logger, worse, no different as far as one can see, or can the log not say.

One estimator decides, declared beforehand: weighted doubly robust where episodes have at most `Limits.horizon` steps,
double reinforcement learning over ratios of visits where they are longer. Its difference from the logger's mean return
on the same episodes is bootstrapped jointly. The limits on support come first, the other estimators can only
contradict, and a policy that learnt from these episodes, or that they picked, is not called better by them.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tidelog.acting.statistics import Interval
from tidelog.data import Log
from tidelog.judging import words
from tidelog.judging.estimate import ESTIMATORS, Supports, check_kind, is_listed, row
from tidelog.judging.evidence import Evidence
from tidelog.judging.findings import Finding, chosen_finding, overlap_finding, support_findings
from tidelog.judging.gather import gather
from tidelog.judging.given import Foreign, as_policy
from tidelog.judging.intervals import Confidence, interval
from tidelog.judging.limits import Limits
from tidelog.judging.ratios import Ratios
from tidelog.judging.results import Decision, Estimates, Support, Verdict
from tidelog.judging.reuse import Reuse, reuse_of
from tidelog.judging.sensitivity import shifted, worst_factors
from tidelog.judging.sequential import CELLS, logged_return, returns
from tidelog.judging.weights import episode_weights

METHOD = "bca"
NOTHING = Interval(np.nan, np.nan, np.nan)
FEWEST = 10  # episodes below which nothing is fitted at all
