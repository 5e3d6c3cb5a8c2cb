"""The measured loops: the plain one learns, and each figure is the ratio that its name says."""

import json
import os
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks import keep, plain_loop, speed
from benchmarks.speed import ENTRIES, Entry
from tidelog import DiscreteBCQ, Log

CONFIG = DiscreteBCQ(hidden=(16,), batch_size=32, learning_rate=1e-2, discount=0.5, tau=0.1)


def corridor():
    """Episodes of two steps; the only logged actions are 1 and then 0, and the second one earns 1."""
    columns = {"observation": np.eye(2, dtype=np.float32)[[0, 1] * 8], "action": np.asarray([1, 0] * 8), "actions": 3}
    ends = {"reward": np.asarray([0.0, 1.0] * 8), "terminated": np.asarray([False, True] * 8)}
    return Log.from_arrays(**columns, **ends, episode=np.repeat(np.arange(8), 2))


@pytest.mark.full
def test_the_plain_loop_reads_transitions_and_learns_what_discrete_bcq_learns(monkeypatch):
    calls = []
    monkeypatch.setattr(plain_loop, "_loop", lambda config, optimiser: lambda *args: calls.append(args) or args[1])
    take = plain_loop.discrete_bcq_loop(corridor(), CONFIG)
    take(3)
    ((rows, *_),) = calls
    assert {name: np.shape(leaf) for name, leaf in rows.items()} == {
        "s": (16, 2), "a": (16,), "r": (16,), "d": (16,), "s2": (16, 2),
    }  # fmt: skip
    monkeypatch.undo()
    rows = {
        "s": jnp.eye(2), "a": jnp.asarray([1, 0]), "r": jnp.asarray([0.0, 1.0]), "d": jnp.asarray([0.5, 0.0]),
        "s2": jnp.eye(2)[::-1],
    }  # fmt: skip
    start = plain_loop._initial((2, 16, 3), 0), plain_loop._initial((2, 16, 3), 1)
    optimiser = optax.adam(CONFIG.learning_rate)
    carry = (start, start[0], optimiser.init(start), jax.random.key(0))
    (critic, imitator), target, _, _ = jax.jit(plain_loop._loop(CONFIG, optimiser))(rows, carry, 600)
    values, chances = plain_loop._apply(critic, jnp.eye(2)), jax.nn.softmax(plain_loop._apply(imitator, jnp.eye(2)))
    # the value of the next state counts half, and only its logged action: 0 of 40 other seeds fail
    np.testing.assert_allclose([values[0, 1], values[1, 0]], [0.5, 1.0], atol=0.05)
    np.testing.assert_allclose(plain_loop._apply(target, jnp.eye(2))[1, 0], 1.0, atol=0.05)
    assert chances.argmax(1).tolist() == [1, 0]


def test_a_row_compares_with_the_plain_loop_in_equal_chunks(monkeypatch):
    taken = []
    for name, value in {
        "SECONDS": 0.01, "ceiling": lambda: 2e9, "rate_of": lambda trainer: 30.0,
        "trainer_of": lambda *args: None, "products_of": lambda *args: {(10, 10, 10): 1},
        "synthetic_log": lambda discrete: None,
    }.items():  # fmt: skip
        monkeypatch.setattr(speed, name, value)
    entry = Entry(SimpleNamespace(takes=()), lambda log, algorithm: taken.append)
    first, _ = speed.measure(entry, 2, 2)
    assert taken[0] == 20  # compiled before it is measured
    assert first["share_of_ceiling"] == 30.0 * 2000 / 2e9
    assert first["one_over_plain_loop"] == 30.0 / first["plain_loop_updates_per_second"]
    assert first["plain_loop_updates_per_second"] > 0
    assert "plain_loop_updates_per_second" not in next(speed.measure(Entry(entry.algorithm), 2, 1))


def test_the_products_alone_are_those_of_an_update():
    speed.products_loop({(4, 3, 2): 2, (5, 4, 3): 1})(3)
    pairs = [(jnp.ones((m, k)), jnp.ones((k, n))) for m, k, n in ((40, 30, 20), (40, 30, 20), (50, 40, 30))]
    compiled = speed._products_alone.lower(pairs, 3).compile().as_text()
    assert len(re.findall(r" dot\(|custom-call\(.*matmul", compiled)) == 3  # none is merged or left out


def test_first_updates_are_timed_with_an_empty_and_with_a_filled_cache(monkeypatch):
    seen = []

    def run(command, check, env):
        cache = env["TIDELOG_CACHE"]
        seen.append((command[1:], check, cache, os.listdir(cache)))
        open(f"{cache}/program", "w").close()

    monkeypatch.setattr(speed.subprocess, "run", run)
    found = speed.first_updates("bc", 2)
    assert set(found) == {"cold_seconds", "warm_seconds"}
    assert [one[:2] for one in seen] == 4 * [(["-m", "benchmarks.first_updates", "bc"], True)]
    assert [one[3] for one in seen] == 2 * [[], ["program"]]
    assert seen[0][2] == seen[1][2] != seen[2][2]


@pytest.mark.full
def test_the_timed_process_runs_an_entry():
    assert speed.first_updates("bc", 1)["warm_seconds"]["median"] > 0.5


def test_everything_that_is_measured_is_one_phase_over_a_log():
    assert {"iql", "bc", "bcq", "discrete-bcq", "discrete-bcq-1024"} <= set(ENTRIES)
    assert all(len(entry.algorithm.phases()) == 1 for entry in ENTRIES.values())


@pytest.mark.full
def test_the_command_prints_figures_and_keeps_them(tmp_path, monkeypatch, capsys):
    for name, value in {"SECONDS": 0.02, "SQUARES": (64,), "STEPS": 2000}.items():
        monkeypatch.setattr(speed, name, value)
    monkeypatch.setattr(keep, "RESULTS", tmp_path)
    monkeypatch.setattr(speed, "ENTRIES", {"bc": ENTRIES["bc"]})
    speed.study(("bc",), seeds=2, repeats=1, no_start=True)
    found = json.loads((tmp_path / "speed_cpu.json").read_text())
    assert found["bc"]["updates_per_second"]["median"] > 0
    assert 0 < found["bc"]["share_of_ceiling"]["median"] < 5
    multiplied = sum(
        2 * np.prod([int(n) for n in shape.split("x")]) * k for shape, k in found["bc"]["matrix_products"].items()
    )
    assert found["bc"]["operations_per_update"] == multiplied
    assert "share_of_ceiling" in capsys.readouterr().out
