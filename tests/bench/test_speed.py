"""The measured loops: each figure is the ratio that its name says."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import keep, speed
from benchmarks.speed import ENTRIES


def test_a_row_has_the_rates_of_one_seed_and_of_several(monkeypatch):
    for name, value in {
        "SECONDS": 0.01, "ceiling": lambda: 2e9, "rate_of": lambda trainer: 30.0, "trainer_of": lambda *args: None,
        "products_of": lambda *args: {(10, 10, 10): 1}, "synthetic_log": lambda *args: None,
    }.items():  # fmt: skip
        monkeypatch.setattr(speed, name, value)
    first, _ = speed.measure(SimpleNamespace(takes=()), 2, 2)
    assert first["share_of_ceiling"] == 30.0 * 2000 / 2e9


def test_everything_that_is_measured_is_one_phase_over_a_log():
    assert {"iql", "bc", "bcq", "discrete-bcq", "discrete-bcq-1024"} <= set(ENTRIES)
    assert all(len(algorithm.phases()) == 1 for algorithm in ENTRIES.values())


def test_what_several_losses_share_is_counted_once():
    inputs, wide, actions, batch = 17, 256, 6, 256
    layers = inputs * wide + wide * wide + wide * actions
    once = (
        2 * batch * (layers + layers + layers - inputs * wide)
    )  # forwards, by weights, by inputs of all but the first
    assert speed.operations(speed.products_of(ENTRIES["bc"], speed.synthetic_log())) == once


@pytest.mark.full
def test_the_command_prints_figures_and_keeps_them(tmp_path, monkeypatch, capsys):
    for name, value in {"SECONDS": 0.02, "SQUARES": (64,), "STEPS": 2000}.items():
        monkeypatch.setattr(speed, name, value)
    monkeypatch.setattr(keep, "RESULTS", tmp_path)
    monkeypatch.setattr(speed, "ENTRIES", {"bc": ENTRIES["bc"]})
    speed.study(("bc",), seeds=2, repeats=1)
    found = json.loads((tmp_path / "speed_cpu.json").read_text())
    assert found["bc"]["updates_per_second"]["median"] > 0
    assert 0 < found["bc"]["share_of_ceiling"]["median"] < 5
    multiplied = sum(
        2 * np.prod([int(n) for n in shape.split("x")]) * k for shape, k in found["bc"]["matrix_products"].items()
    )
    assert found["bc"]["operations_per_update"] == multiplied
    assert "share_of_ceiling" in capsys.readouterr().out
