"""The tests again and again: how often a tier fails without a cause, on a quiet and on a busy machine.

`python -m benchmarks.suite_repeats [--tier default] [--times 20]` runs a tier of this checkout and adds each run to
`benchmarks/results/suite_repeats.json`: the commit, the seconds, the tests that failed, and the load of the machine in
that time without the run itself (a run on two processors is a load of about 2). Runs add up over commits. A checkout
with changes that are not committed is refused, because nobody could repeat the run.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.keep import RESULTS, SHARED, keep, kept
from benchmarks.suite_mutants import FAILED, TIERS
from benchmarks.suite_time import COUNTS

ROOT = Path(__file__).resolve().parents[1]
NAME, COMMAND = "suite_repeats", "python -m benchmarks.suite_repeats"
OWN_LOAD, BUSY = 2.0, 1.0  # load of the run itself; load of others from which on the machine is called busy


def git(*words: str) -> str:
    """Return what a git command prints."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout.strip()


def run(tier: str, commit: str) -> dict[str, Any]:
    """Run a tier once; return its row."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-m", TIERS[tier]]
    environment = os.environ | {"TIDELOG_SHARED": str(SHARED.resolve())}
    begin, loads = time.perf_counter(), []
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        try:
            process.wait(timeout=30.0)
        except subprocess.TimeoutExpired:
            loads.append(os.getloadavg()[0])
    printed = process.stdout.read() if process.stdout is not None else ""
    counts = {word: int(count) for count, word in COUNTS.findall(printed.splitlines()[-1])}
    others = max(0.0, sum(loads) / max(len(loads), 1) - OWN_LOAD)
    return {
        "tier": tier,
        "commit": commit,
        "seconds": round(time.perf_counter() - begin),
        "load_of_others": round(others, 1),
        "tests": counts,
        "failed": FAILED.findall(printed),
    }


def main() -> None:
    """Add runs to the kept ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tier", choices=tuple(TIERS), default="default")
    parser.add_argument("--times", type=int, default=1)
    asked = parser.parse_args()
    if git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results"):
        raise SystemExit("this checkout has changes that are not committed. fix: commit them first")
    commit = git("rev-parse", "--short", "HEAD")
    for _ in range(asked.times):
        runs = kept(NAME)["runs"] if (RESULTS / f"{NAME}.json").exists() else []
        runs.append(run(asked.tier, commit))
        print(runs[-1], flush=True)
        summary = {}
        for tier in TIERS:
            for name, busy in (("quiet", False), ("busy", True)):
                mine = [one for one in runs if one["tier"] == tier and (one["load_of_others"] >= BUSY) == busy]
                summary[f"{tier}, {name}"] = {"runs": len(mine), "failed": sum(bool(one["failed"]) for one in mine)}
        keep(NAME, COMMAND, {"summary": summary}, runs=runs)


if __name__ == "__main__":
    main()
