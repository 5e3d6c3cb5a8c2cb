"""Which tier of the tests catches which mistake: every mutation of `mutations.txt` applied to a copy, one at a time.

`python -m benchmarks suite_mutants [--only WORDS] [--jobs 2]` copies the checkout once a job, applies a mutation, and
runs the tests of the default tier near it; those that pass are then tried with the other tiers near it, and then with
every test, until one fails. What was found is kept in `benchmarks/results/suite_mutants.json` after each mutation, so
that a stopped run goes on there. A mutation whose test has moved to another tier, or is gone, is tried again. The test
that fails is run again without the mutation: if it fails there too, it proves nothing, and the mutation stays open. The
whole takes hours.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import gettempdir
from threading import Lock
from typing import Any

from benchmarks.keep import RESULTS, SHARED, keep, known
from benchmarks.suite_mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[1]
SCRATCH = Path(os.environ.get("TIDELOG_SCRATCH", gettempdir())) / "tidelog-suite-mutants"
NAME, COMMAND = "suite_mutants", "python -m benchmarks suite_mutants"
COPIED = ("src", "tests", "benchmarks", "docs", "examples", "pyproject.toml", "README.md", "CHANGELOG.md")
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)  # a case's name may have spaces
TIERS = {"default": "not slow and not full", "full": "full", "bits": "bits"}
LIMIT = 3600  # seconds of one run; a mutation that hangs a test is caught by that


def copy(number: int) -> Path:
    """Copy what the tests need to a folder of its own."""
    folder = SCRATCH / f"copy-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def failing(folder: Path, marks: str, paths: list[str]) -> str | None:
    """Return the first test that fails among those with the marks, if any."""
    environment = os.environ | {
        "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}",
        "PYTHONPYCACHEPREFIX": str(SCRATCH / "bytecode"),  # kept from run to run: collection takes 9 s instead of 40
        "TIDELOG_SHARED": str(SHARED.resolve()),
        "TIDELOG_CACHE": str(SCRATCH / "programs"),
    }
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-rfE", "-m", marks]
    command = [sys.executable, "-m", "pytest", *options, *paths]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return "a test does not end"
    if done.returncode in (0, 5):  # 5: no test has these marks here
        return None
    found = FAILED.search(done.stdout)
    return found[1] if found else f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def caught(folder: Path, mutation: Mutation, near_only: bool) -> dict[str, Any] | None:
    """Apply one mutation, run tests until one fails, and restore the file; None if that settles nothing."""
    path = mutation.path(folder / "src")
    text = path.read_text()
    path.write_text(mutation.apply(text))
    try:
        tier, test = first_failure(folder, mutation.near.split(), near_only)
    finally:
        path.write_text(text)
    if test is None and near_only:
        return None
    if test is not None and "::" in test and failing(folder, TIERS[tier or "full"], [test]):
        print(f"{test} fails without the mutation {mutation.name!r} too: mend it, then start again", flush=True)
        return None
    print(f"{tier or 'NOT CAUGHT'}: {mutation.name} ({test})", flush=True)
    return {"mutation": mutation.name, "function": mutation.function, "caught": tier, "by": test}


def first_failure(folder: Path, near: list[str], near_only: bool) -> tuple[str | None, str | None]:
    """Return the tier and the name of the first test that fails, of the default tier near the mutation, or of all.

    The full tier near it is tried before the whole default tier, which takes minutes. A mutation that both would catch
    then counts for the full tier: the share of the default tier is at least what is reported.
    """
    order = [("default", near)] if near_only else [("full", near), ("bits", near), *((tier, []) for tier in TIERS)]
    for tier, paths in order:
        test = failing(folder, TIERS[tier], paths)
        if test is not None:
            return tier, test
    return None, None


def tests_of(marks: str) -> set[str]:
    """The names of the tests of a tier of this checkout."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", marks]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if "::" in line}


class Table:
    """What is known of the mutations: kept after each one, so that a stopped study goes on, on another machine too.

    What was found of a mutation is forgotten where its test is no longer in that tier.
    """

    def __init__(self) -> None:
        rows = known(NAME).get("rows", [])
        tests = {tier: tests_of(marks) for tier, marks in TIERS.items()}
        self.rows = {
            row["mutation"]: row
            for row in rows
            if row["caught"] is None or "::" not in row["by"] or row["by"] in tests[row["caught"]]
        }
        self._lock = Lock()

    def open(self) -> list[Mutation]:
        """The mutations that nothing is known of."""
        return [one for one in MUTATIONS if one.name not in self.rows]

    def add(self, row: dict[str, Any]) -> None:
        """Add what was found of one mutation, and keep the table."""
        with self._lock:
            self.rows[row["mutation"]] = row
            rows = [self.rows[one.name] for one in MUTATIONS if one.name in self.rows]
            counts = {tier: sum(one["caught"] == tier for one in rows) for tier in (*TIERS, None)}
            content = {
                "mutations": len(MUTATIONS),
                "tried": len(rows),
                "caught_by_default": counts["default"],
                "caught_by_full_only": counts["full"],
                "caught_by_bits_only": counts["bits"],
                "not_caught": counts[None],
                "share_default": counts["default"] / len(MUTATIONS),  # at least
                "open": [one.name for one in self.open()],
            }
            keep(NAME, COMMAND, content, rows=rows)


def study(only: str = "", jobs: int = 2) -> None:
    """Try the mutations that are not yet known, with `only` in their name or function."""
    named = {one.name for one in MUTATIONS if only in f"{one.name} {one.function}"}
    table = Table()
    folders: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        folders.put(copy(number))

    def one(mutation: Mutation, near_only: bool) -> None:
        folder = folders.get()
        try:
            found = caught(folder, mutation, near_only)
        finally:
            folders.put(folder)
        if found is not None:
            table.add(found)

    for near_only in (True, False):
        todo = [one for one in table.open() if one.name in named]
        print(f"{len(todo)} mutations, {'the tests near each' if near_only else 'all tests'}", flush=True)
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(partial(one, near_only=near_only), todo))
    print(f"{len(table.rows)} of {len(MUTATIONS)} are known: {RESULTS / NAME}.json")
