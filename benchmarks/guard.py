"""Whether a commit made tidelog slower: its jobs against those of its parent, in turn, in processes of their own.

`python -m benchmarks guard [--base COMMIT] [--jobs NAME ...] [--pairs 8]` keeps `benchmarks/results/guard.json`, and
exits with code 1 if a job is slower by more than 5 % beyond noise: the lower end of the interval of its median ratio,
from order statistics, is above 1.05. A job that is not slower by 5 % fails by chance in at most 5 % of the runs of the
guard, one that did not change far less often; neither needs an assumption about the noise.

The jobs use the public API and the command line only, so that any two commits can be compared.
"""

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.spread import words_of

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.05
PATIENTS, VISITS = 50_000, 6


def _table(folder: Path, patients: int) -> Path:
    """Write a clinic's table of random numbers, and its mapping, once."""
    path, rows = folder / f"visits-{patients}.csv", patients * VISITS
    if not path.exists():
        random = np.random.default_rng(0)
        columns = {"patient": np.repeat(np.arange(patients), VISITS), "visit": np.tile(np.arange(VISITS), patients)}
        columns |= {name: random.normal(size=rows).round(3) for name in ("severity", "strain", "toxicity")}
        columns |= {
            "treatment": random.choice(["rest", "drug", "both"], rows),
            "recovered": random.integers(0, 2, rows),
        }
        pl.DataFrame(columns).write_csv(path)
        (folder / "columns.toml").write_text(
            'episode = "patient"\nstep = "visit"\nobservation = ["severity", "strain", "toxicity"]\n'
            'action = "treatment"\nreward = "recovered"\nterminated = true\n'
        )
    return path


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _command(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "tidelog", *map(str, words)], check=True, capture_output=True)


def show_help(folder: Path) -> float:
    """Start the command line ten times."""
    return _seconds(lambda: [_command("--help") for _ in range(10)])


def read(folder: Path) -> float:
    """Read and check a table of 300,000 rows."""
    import tidelog as tl

    path = _table(folder, PATIENTS)
    tl.read_log(_table(folder, 10), columns=folder / "columns.toml")
    return _seconds(lambda: tl.read_log(path, columns=folder / "columns.toml"))


def act(folder: Path) -> float:
    """Start `tidelog act` on a saved policy and 1,000 rows, three times."""
    policy, rows = folder / "policy", _table(folder, 167)
    if not policy.exists():
        words = ["--columns", folder / "columns.toml", "--steps", 20, "--out", folder / "run", "--overwrite"]
        words += ["--held-out", 0]  # nothing to judge
        _command("train", "bc", "--data", rows, *words)
        _command("export", folder / "run", "--out", policy, "--no-onnx")
    words = ["--data", rows, "--out", folder / "actions.csv", "--overwrite"]
    return _seconds(lambda: [_command("act", policy, *words) for _ in range(3)])


def judge(folder: Path) -> float:
    """Judge a cloned policy on 5,000 episodes, after a first time that compiles."""
    import tidelog as tl

    log = tl.read_log(_table(folder, 5_000), columns=folder / "columns.toml")
    policy = tl.fit(tl.BC(), log, 200, progress=False).policy()
    words = {"learnt_from": "other data", "ledger": False, "progress": False}
    tl.judge(policy, log, **words)
    return _seconds(lambda: tl.judge(policy, log, **words))


def updates(name: str) -> Callable[[Path], float]:
    """Return the job of one algorithm: seconds of 1,000 updates at its defaults, compiled before."""

    def job(folder: Path) -> float:
        import tidelog as tl

        generator, rows, discrete = np.random.default_rng(0), 20_000, name == "discrete-bcq"
        actions = generator.integers(0, 6, rows) if discrete else generator.uniform(-1, 1, (rows, 6))
        log = tl.Log.from_arrays(
            observation=generator.standard_normal((rows, 17)).astype(np.float32),
            action=actions.astype(np.int32 if discrete else np.float32),
            reward=generator.standard_normal(rows).astype(np.float32),
            truncated=np.arange(rows) % 1000 == 999,
            episode=np.arange(rows) // 1000,
            **({"actions": 6} if discrete else {"bounds": (-1.0, 1.0)}),
        )
        algorithm = {"iql": tl.IQL, "bcq": tl.BCQ, "discrete-bcq": tl.DiscreteBCQ, "bc": tl.BC}[name]
        tl.fit(algorithm(), log, 200, progress=False)  # compiles and loads
        few = _seconds(lambda: tl.fit(algorithm(), log, 200, progress=False))
        return _seconds(lambda: tl.fit(algorithm(), log, 1_200, progress=False)) - few

    return job


JOBS: dict[str, Callable[[Path], float]] = {
    "help": show_help,
    "read": read,
    "act": act,
    "judge": judge,
    **{name: updates(name) for name in ("iql", "bc", "bcq", "discrete-bcq")},
}


def seconds_of(job: str, folder: str) -> float:
    """Do a job with the package that is imported."""
    return JOBS[job](Path(folder))


def timed(job: str, source: Path, folder: Path) -> float:
    """Return the seconds of a job with the package below `source`, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "TIDELOG_CACHE": str(folder / "cache")}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}  # as installed
    done = subprocess.run(
        words_of(seconds_of, job, str(folder)), env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the job '{job}' fails with {source}:\n{done.stderr[-3000:]}")
    return float(done.stdout.split()[-1])


def ratios(job: str, before: Path, now: Path, pairs: int, scratch: Path) -> list[float]:
    """Return the seconds now over those before, of pairs that begin with the one and the other in turn."""
    sources = {"before": before, "now": now}
    folders = {name: scratch / name for name in sources}
    for name, folder in folders.items():
        folder.mkdir(exist_ok=True)
        timed(job, sources[name], folder)  # fills the caches
    found = []
    for number in range(pairs):
        order = sorted(sources, reverse=bool(number % 2))
        seconds = {name: timed(job, sources[name], folders[name]) for name in order}
        found.append(seconds["now"] / seconds["before"])
    return found


def lowest_median(found: list[float]) -> float:
    """Return the lower end of the one-sided 95 % interval of the median; 0 for too few ratios to have one."""
    n, below, chance = len(found), 0, 0.5 ** len(found)
    if chance > 0.05:
        return 0.0
    while chance + math.comb(n, below + 1) * 0.5**n <= 0.05:
        below += 1
        chance += math.comb(n, below) * 0.5**n
    return sorted(found)[below]


def study(base: str = "HEAD~1", jobs: Sequence[str] = tuple(JOBS), pairs: int = 8) -> None:
    """Compare this checkout with a commit, keep the ratios, and exit with code 1 if a job is slower."""
    from benchmarks.keep import keep  # not above: the jobs run with packages that lack what it imports

    with tempfile.TemporaryDirectory() as scratch:
        earlier, git = Path(scratch, "checkout"), ["git", "-C", str(ROOT)]
        subprocess.run([*git, "worktree", "add", "--detach", str(earlier), base], check=True, capture_output=True)
        try:
            rows = []
            for job in jobs:
                found = ratios(job, earlier / "src", ROOT / "src", pairs, Path(scratch))
                lower = lowest_median(found)
                row = {"job": job, "median": statistics.median(found), "lower": lower, "slower": lower > LIMIT}
                print(f"{job}: {row['median']:.3f} times the seconds of before (at least {lower:.3f})", flush=True)
                rows.append(row | {"ratios": found})
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(earlier)], check=True)
    short = subprocess.run([*git, "rev-parse", "--short", base], capture_output=True, text=True, check=True)
    print(keep("guard", "python -m benchmarks guard --base COMMIT", {"base": short.stdout.strip()}, jobs=rows))
    slower = [row["job"] for row in rows if row["slower"]]
    if slower:
        raise SystemExit(f"slower by more than {LIMIT - 1:.0%}: {', '.join(slower)}")
