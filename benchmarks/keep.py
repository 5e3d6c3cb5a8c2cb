"""Results as files: what was measured, by which command, on which machine."""

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import binomtest

from tidelog._machine import this_machine
from tidelog.policies.statistics import Interval

RESULTS = Path(os.environ.get("TIDELOG_RESULTS", Path(__file__).parent / "results"))
SHARED = Path(os.environ.get("TIDELOG_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def keep(name: str, command: str, content: dict, **rows: list[dict]) -> Path:
    """Write one study's results under benchmarks/results; long lists of rows take a line a row, at six digits."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    text = json.dumps({"command": command, "machine": this_machine(), **content}, indent=1)
    for title, several in rows.items():
        lines = ",\n".join(f"  {json.dumps(_short(row))}" for row in several)
        text = f'{text[:-2]},\n "{title}": [\n{lines}\n ]\n}}'
    path.write_text(text + "\n")
    return path


def _short(value: object) -> object:
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def kept(name: str) -> dict:
    """Read one study's results; older files name their command by its module."""
    found = json.loads((RESULTS / f"{name}.json").read_text())
    if isinstance(found, dict) and "command" in found:
        found["command"] = found["command"].replace("python -m benchmarks.", "python -m benchmarks ")
    return found


def known(name: str) -> dict:
    """Read the results of a study that adds to them; nothing where it has none."""
    return kept(name) if (RESULTS / f"{name}.json").exists() else {}


def source(*found: dict) -> str:
    """Say by which commands results were made; of a study that left, by which program of the history."""
    programs = {one["command"]: re.search(r"python -m benchmarks (\w+)", one["command"]) for one in found}
    gone = {
        match[1]: None
        for match in programs.values()
        if match and not Path(__file__).with_name(f"{match[1]}.py").exists()
    }
    commands = [f"`{text}`" for text, match in programs.items() if match is None or match[1] not in gone]
    said = [f"Command{'s' * (len(commands) > 1)}: {', '.join(commands)}."] if commands else []
    if gone:
        said.append(f"Measured by {', '.join(f'`benchmarks/{name}.py`' for name in gone)} in the history.")
    return " ".join(said)


def measured(first: dict, *others: dict) -> str:
    """Say by which commands results were made, and on which machine the first ones."""
    machine = first["machine"]
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] > 1)}"
    cpu = f"{threads} of {machine.get('processor', 'a CPU')}"
    on = cpu if machine["device"].startswith("cpu") else machine["device"]
    return f"{source(first, *others)[:-1]} ({on}, JAX {machine['jax']})."


def by_key(rows: Iterable[dict], key: Callable[[dict], Any]) -> Iterable[tuple[Any, list[dict]]]:
    """Rows by a key, in the order of their first one."""
    groups: dict[Any, list[dict]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups.items()


def share(count: int, of: int) -> dict[str, Any]:
    """A share with Wilson's 95% interval."""
    if not of:
        return {"count": 0, "of": 0}
    found = binomtest(count, of).proportion_ci(0.95, "wilson")
    return {"count": count, "of": of, "share": count / of, "low": float(found.low), "high": float(found.high)}


def median_and_range(values: Sequence[float]) -> dict[str, float]:
    """Return the median of values, and their ends."""
    return {"median": float(median(values)), "min": float(min(values)), "max": float(max(values))}


def seed_interval(values: list[float]) -> Interval:
    """Mean over seeds [S] with a 95% Student-t interval: with so few seeds a bootstrap would be too narrow."""
    array = np.asarray(values, float)
    quantile = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}[len(array)]
    half = quantile * array.std(ddof=1) / np.sqrt(len(array))
    return Interval(float(array.mean()), float(array.mean() - half), float(array.mean() + half))
