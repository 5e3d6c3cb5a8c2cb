"""Seconds of the test suite: this checkout's default tier against the suite of an earlier commit, in turn.

Each run starts with an empty cache of compiled programs; one more run of the default tier then uses its filled cache.
`python -m benchmarks.suite_time --against COMMIT [--pairs 2]` keeps `benchmarks/results/suite_time.json`; `--full` also
times the full tier once. Times are those of the machine that the file names, with nothing else running.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.keep import SHARED, keep

ROOT = Path(__file__).resolve().parents[1]
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")


def timed(checkout: Path, cache: Path, *arguments: str) -> dict[str, Any]:
    """Run the suite of a checkout; return its seconds of clock and processor, and what its tests said."""
    environment = os.environ | {
        "TIDELOG_CACHE": str(cache),
        "TIDELOG_SHARED": str(SHARED.resolve()),
        "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    tests = {word: int(count) for count, word in COUNTS.findall(done.stdout.splitlines()[-1])}
    if done.returncode:
        raise SystemExit(f"the suite in {checkout} fails, so its time says nothing:\n{done.stdout[-3000:]}")
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "tests": tests,
    }


def pair(earlier: Path) -> dict[str, Any]:
    """Time the earlier suite, then the default tier with a cold and with a filled cache."""
    with tempfile.TemporaryDirectory() as scratch:
        one, two = Path(scratch, "earlier"), Path(scratch, "now")
        return {"earlier": timed(earlier, one), "cold": timed(ROOT, two), "warm": timed(ROOT, two)}


def main() -> None:
    """Measure the pairs and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", required=True, help="the earlier commit")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--full", action="store_true", help="also time `pytest -m full` once")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        earlier = Path(scratch, "checkout")
        git = ["git", "-C", str(ROOT)]
        subprocess.run([*git, "worktree", "add", "--detach", str(earlier), asked.against], check=True)
        try:
            pairs = []
            for number in range(asked.pairs):
                pairs.append(pair(earlier))
                print(number + 1, pairs[-1], flush=True)
            full = timed(ROOT, Path(scratch, "full"), "-m", "full") if asked.full else None
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(earlier)], check=True)
    shares = [one["cold"]["processor_seconds"] / one["earlier"]["processor_seconds"] for one in pairs]
    content = {"against": asked.against, "share_of_processor_seconds": shares, "full": full}
    print(keep("suite_time", "python -m benchmarks.suite_time --against COMMIT --full", content, pairs=pairs))


if __name__ == "__main__":
    main()
