"""Which lines and branches of the source the tests run: the default tier alone, and all tiers together.

`python -m benchmarks suite_coverage` (needs the package pytest-cov) runs the tiers under `coverage`, commands of
their own processes included, and keeps `benchmarks/results/suite_coverage.json`: shares by module, and every line and
branch that no test runs. `--data FOLDER` reads the files of an earlier measurement instead of running the tests.
The tests of optional packages run where these are installed (`pip install ale-py "gymnasium[mujoco]"`); the results
name those that were not.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.keep import SHARED, keep

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tidelog"
TIERS = {"default": "not slow and not full", "full": "full and not slow", "bits": "bits"}
OPTIONAL = ("ale_py", "envpool", "mujoco")
SETTINGS = """[run]
branch = True
source = {source}
patch = subprocess
parallel = True
sigterm = True
data_file = {data}
disable_warnings = no-data-collected, module-not-imported, module-not-measured, already-imported
[report]
exclude_also =
    if TYPE_CHECKING:
    ^\\s*\\.\\.\\.$
"""


def measure(folder: Path) -> dict[str, list[str]]:
    """Run every tier under coverage; its data goes to `folder/<tier>`. Returns the tests that fail under it.

    A test that fails has run its lines nevertheless: those of times fail where coverage makes them slow.
    """
    failed = {}
    for tier, marks in TIERS.items():
        settings = folder / f"settings-{tier}.ini"  # coverage erases the files that begin with the data's name
        settings.write_text(SETTINGS.format(source=SOURCE, data=folder / tier))
        options = ["--cov", str(SOURCE), "--cov-branch", "--cov-report=", f"--cov-config={settings}"]
        environment = os.environ | {"COVERAGE_RCFILE": str(settings), "TIDELOG_SHARED": str(SHARED.resolve())}
        command = [sys.executable, "-m", "pytest", "-q", "-m", marks, *options]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=subprocess.PIPE, text=True)
        print(done.stdout, flush=True)
        if done.returncode not in (0, 1):
            raise SystemExit(f"the {tier} tier cannot be run under coverage: mend it, then start again")
        failed[tier] = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return failed


def shares(folder: Path, tiers: list[str]) -> dict[str, Any]:
    """Return what the named tiers run together: totals, modules, and the lines and branches that they miss."""
    import coverage

    settings = folder / "report.ini"
    settings.write_text(SETTINGS.format(source=SOURCE, data=folder / "report"))
    together = coverage.Coverage(data_file=None, config_file=str(settings))
    for tier in tiers:
        part = coverage.CoverageData(str(folder / tier))
        part.read()
        together.get_data().update(part)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "report.json")
        together.json_report(outfile=str(path), pretty_print=False)
        report = json.loads(path.read_text())
    totals = report["totals"]
    modules = []
    for name, file in sorted(report["files"].items()):
        summary = file["summary"]
        row = {"module": str(Path(name).resolve().relative_to(SOURCE)), "lines": summary["num_statements"]}
        row |= {"missed_lines": file["missing_lines"], "missed_branches": file["missing_branches"]}
        modules.append(row)
    return {
        "lines": totals["num_statements"],
        "share_of_lines": totals["covered_lines"] / totals["num_statements"],
        "branches": totals["num_branches"],
        "share_of_branches": totals["covered_branches"] / totals["num_branches"],
        "modules": modules,
    }


def main() -> None:
    """Measure the tiers, or read a measurement, and keep the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the files `default`, `full` and `bits` of a measurement")
    asked = parser.parse_args()
    if importlib.util.find_spec("pytest_cov") is None:
        raise SystemExit("pytest-cov is not installed: pip install pytest-cov")
    failed: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.data or Path(scratch)
        if asked.data is None:
            failed = measure(folder)
        default, together = shares(folder, ["default"]), shares(folder, list(TIERS))
    missed = [row for row in together.pop("modules") if row["missed_lines"] or row["missed_branches"]]
    default.pop("modules")
    absent = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    content = {"default": default, "all": together, "failed": failed, "not_installed": absent}
    print(keep("suite_coverage", "python -m benchmarks suite_coverage", content, missed=missed))


if __name__ == "__main__":
    main()
