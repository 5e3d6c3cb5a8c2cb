"""How long a whole verdict on 100,000 steps takes, models and clones of the logger by networks included."""

import statistics
import time

import tidelog as tl
from benchmarks.keep import keep
from tidelog.bench.speed import synthetic_log

COMMAND = "python -m benchmarks.verdict_speed"
REPEATS = 1


def seconds(kind: str) -> float:
    """One verdict on a policy that takes and sees what the tasks of `tidelog bench` show; nothing is known of it."""
    log = synthetic_log(kind == "discrete")
    policy = tl.fit(tl.BC(), log.take_episodes(range(10)), 100, progress=False).policy()
    begin = time.perf_counter()
    verdict = tl.judge(policy, log, sample=True, propensities="estimated", ledger=False)
    assert verdict.context["model"] == "neural"
    return time.perf_counter() - begin


def study() -> dict:
    """Seconds by kind of action, kept."""
    found = {kind: [seconds(kind) for _ in range(REPEATS)] for kind in ("discrete", "continuous")}
    content = {"steps": 100_000, "seconds": found, "median": {k: statistics.median(v) for k, v in found.items()}}
    keep("verdict_speed", COMMAND, content)
    return content


if __name__ == "__main__":
    print(study())
