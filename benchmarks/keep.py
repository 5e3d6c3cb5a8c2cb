"""Results as files: what was measured, by which command, on which machine."""

import json
import os
from pathlib import Path

import numpy as np

from tidelog.acting.statistics import Interval
from tidelog.training.record import this_machine

RESULTS = Path(__file__).parent / "results"
SHARED = Path(os.environ.get("TIDELOG_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def keep(name: str, command: str, content: dict) -> Path:
    """Write one study's results under benchmarks/results."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"command": command, "machine": this_machine(), **content}, indent=1) + "\n")
    return path


def kept(name: str) -> dict:
    """Read one study's results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def seed_interval(values: list[float]) -> Interval:
    """Mean over seeds [S] with a 95 % Student-t interval: with so few seeds a bootstrap would be too narrow."""
    array = np.asarray(values, float)
    quantile = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}[len(array)]
    half = quantile * array.std(ddof=1) / np.sqrt(len(array))
    return Interval(float(array.mean()), float(array.mean() - half), float(array.mean() + half))
