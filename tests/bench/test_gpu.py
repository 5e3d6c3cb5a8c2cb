"""The measurements for a GPU, at tiny sizes: they run on any device, and a step that fails is named."""

import json
import os
import re
import subprocess
import sys

import pytest

from benchmarks import gpu, keep
from benchmarks.guard import ROOT

SCRIPT = ROOT / "benchmarks" / "gpu.sh"


def test_every_step_has_a_time_limit_and_all_fit_into_40_minutes():
    limits = dict(re.findall(r"\[(\w+)\]=(\d+)", SCRIPT.read_text()))
    assert set(limits) == set(gpu.STEPS)
    assert sum(int(limit) + 10 for limit in limits.values()) <= 40 * 60
    (listed,) = re.findall(r"steps=\((\w+ [^)]*)\)", SCRIPT.read_text())
    assert listed.split() == list(gpu.STEPS)


@pytest.mark.full
@pytest.mark.parametrize(
    "step", ["bc", "pictures", pytest.param("decisions", marks=pytest.mark.slow), "top_k", "judge"]
)  # others are bc's with other names
def test_a_step_leaves_a_file(step, tmp_path, monkeypatch):
    monkeypatch.setattr(keep, "RESULTS", tmp_path)
    gpu.study(step, tiny=True)
    content = json.loads((tmp_path / f"gpu_{step}.json").read_text())
    assert content["tiny"]
    assert content["found"]
    assert content["peak_bytes_of_this_step"] > 0


@pytest.mark.full
def test_a_step_that_fails_is_named_and_stops_no_other(tmp_path):
    environment = os.environ | {"TIDELOG_TINY": "1", "TIDELOG_RESULTS": str(tmp_path), "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", str(SCRIPT), "no_step", "top_k"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no_step: FAILED (exit code 2)" in done.stderr
    assert done.stderr.endswith("failed: no_step\n")
    assert [path.name for path in tmp_path.iterdir()] == ["gpu_top_k.json"]
