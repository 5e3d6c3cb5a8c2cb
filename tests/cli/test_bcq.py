"""BCQ from logs that need no mapping, by the command line; and logs that neither BCQ can take."""

import gymnasium
import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.data.sources.test_arrays import hdf5
from tests.data.sources.test_minari import collect

SMALL = ["--hidden", "8", "--generator-hidden", "8", "--perturbation-hidden", "8", "--samples", "4",
         "--target-samples", "2", "--batch-size", "8", "--steps", "6", "--eval-every", "3",
         "--held-out", "0"]  # fmt: skip


def act_on_rows(tidelog, size):
    """Act on three rows whose columns are named as the log's features; the actions."""
    policy = tl.load_run("run").policy()
    (leaf,) = policy.spec.observation
    columns = [f"{leaf}_{i}" for i in range(size)]
    rows = np.linspace(-0.5, 0.5, 3 * size).reshape(3, size).astype(np.float32)
    pl.DataFrame(dict(zip(columns, rows.T, strict=True))).write_csv("new.csv")
    done = tidelog("act", "run", "--data", "new.csv", "--out", "actions.csv")
    assert done.code == 0, done.err
    return pl.read_csv("actions.csv"), policy({leaf: rows})


@pytest.mark.full
def test_a_minari_data_set(tmp_path, tidelog, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.chdir(tmp_path)
    collect(gymnasium.make("Pendulum-v1", max_episode_steps=12), "pendulum/small-v0", (12, 12, 12))
    done = tidelog("train", "bcq", "--data", "pendulum/small-v0", "--out", "run", *SMALL)
    assert done.code == 0, done.err
    table, wanted = act_on_rows(tidelog, 3)
    np.testing.assert_allclose(table.select(pl.selectors.starts_with("action")).to_numpy(), wanted, atol=1e-5)
    assert np.abs(wanted).max() <= 2.0


@pytest.mark.full
def test_a_file_in_d4rls_layout(tmp_path, tidelog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hdf5(tmp_path / "walk.hdf5")
    done = tidelog("train", "bcq", "--data", "walk.hdf5", "--out", "run", *SMALL)
    assert done.code == 0, done.err
    table, wanted = act_on_rows(tidelog, 3)
    np.testing.assert_allclose(table.select(pl.selectors.starts_with("action")).to_numpy(), wanted, atol=1e-5)
    assert wanted.shape == (3, 2)
