"""The measured loops: each figure is the ratio that its name says."""

import json
import re
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import keep, speed
from benchmarks.speed import ENTRIES


def test_a_row_has_the_rates_of_one_seed_of_several_and_of_the_products_alone(monkeypatch):
    for name, value in {
        "SECONDS": 0.01, "ceiling": lambda: 2e9, "rate_of": lambda trainer: 30.0, "trainer_of": lambda *args: None,
        "products_of": lambda *args: {(10, 10, 10): 1}, "synthetic_log": lambda *args: None,
    }.items():  # fmt: skip
        monkeypatch.setattr(speed, name, value)
    first, _ = speed.measure(SimpleNamespace(takes=()), 2, 2)
    assert first["share_of_ceiling"] == 30.0 * 2000 / 2e9
    assert first["share_of_products_alone"] == 30.0 / first["products_alone_per_second"]
    assert first["products_alone_per_second"] > 0


def test_the_products_alone_are_those_of_an_update():
    speed.products_loop({(4, 3, 2): 2, (5, 4, 3): 1})(3)
    pairs = [(jnp.ones((m, k)), jnp.ones((k, n))) for m, k, n in ((40, 30, 20), (40, 30, 20), (50, 40, 30))]
    compiled = speed._products_alone.lower(pairs, 3).compile().as_text()
    assert len(re.findall(r" dot\(|custom-call\(.*matmul", compiled)) == 3  # none is merged or left out


def test_everything_that_is_measured_is_one_phase_over_a_log():
    assert {"iql", "bc", "bcq", "discrete-bcq", "discrete-bcq-1024"} <= set(ENTRIES)
    assert all(len(algorithm.phases()) == 1 for algorithm in ENTRIES.values())


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
