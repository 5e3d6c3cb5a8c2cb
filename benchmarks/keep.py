"""Results as files: what was measured, by which command, on which machine."""

import json
import os
from pathlib import Path

import numpy as np

from tidelog.policies.statistics import Interval
from tidelog.training.record import this_machine

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
    """Read one study's results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def seed_interval(values: list[float]) -> Interval:
    """Mean over seeds [S] with a 95% Student-t interval: with so few seeds a bootstrap would be too narrow."""
    array = np.asarray(values, float)
    quantile = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}[len(array)]
    half = quantile * array.std(ddof=1) / np.sqrt(len(array))
    return Interval(float(array.mean()), float(array.mean() - half), float(array.mean() + half))
