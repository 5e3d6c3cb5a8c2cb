"""Declared atoms of continuous actions: from a mapping or an argument into every saved form."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tidelog import Columns, concat
from tidelog._files import MANIFEST
from tidelog.data.log import Log
from tidelog.data.read import open_log, read_log
from tidelog.errors import ConfigError, LogError

PLAIN = {
    "observation": np.arange(6.0), "action": np.asarray([0.0, 0.3, 0.0, -0.2, 0.5, 0.0])[:, None],
    "reward": np.arange(6.0), "terminated": True, "bounds": (-1.0, 1.0),
}  # fmt: skip


def table(**more):
    columns = {"seen": np.arange(6.0), "dose": PLAIN["action"][:, 0], "earned": np.arange(6.0)}
    mapping = {"observation": ["seen"], "action": "dose", "reward": "earned", "terminated": True, **more}
    return pl.DataFrame(columns), Columns(**mapping)


def test_atoms_are_kept_in_parts_and_in_every_saved_form(tmp_path: Path) -> None:
    log = read_log(*table(atoms=[0.5, 0, 0.0], bounds=[-1, 1]))
    assert log.atoms == (0.0, 0.5)
    assert [part.atoms for part in log.split(0.5)] == [(0.0, 0.5)] * 2
    log.save(tmp_path / "a.tidelog")
    assert open_log(tmp_path / "a.tidelog").atoms == (0.0, 0.5)
    log.save(tmp_path / "b.tidelog", shards=2)
    assert open_log(tmp_path / "b.tidelog").atoms == (0.0, 0.5)
    assert read_log(tmp_path / "a.parquet", log.to_parquet(tmp_path / "a.parquet")).atoms == (0.0, 0.5)
    arrays = Log.from_arrays(**PLAIN, atoms=0.0)
    arrays.to_npz(tmp_path / "a.npz")
    assert read_log(tmp_path / "a.npz").atoms == (0.0,)
    assert Log.from_arrays(**arrays.to_arrays()).atoms == (0.0,)


def test_a_log_without_atoms_is_saved_as_before_and_has_another_fingerprint(tmp_path: Path) -> None:
    plain, named = (Log.from_arrays(**PLAIN, atoms=atoms) for atoms in ((), [0.0]))
    plain.save(tmp_path / "a")
    assert "atoms" not in json.loads((tmp_path / "a" / MANIFEST).read_text())
    assert "atoms" not in plain.to_parquet(tmp_path / "a.parquet").read_text()
    assert plain.fingerprint() != named.fingerprint(), "verdicts differ"


@pytest.mark.parametrize("atoms", ["0.0", [None], [np.inf], ["a"], {"dose": 0.0}, [True], [[0.0]]])
def test_only_finite_numbers_are_atoms(atoms: object) -> None:
    with pytest.raises(ConfigError, match=r"atoms = .*expected finite numbers. fix:"):
        table(atoms=atoms)
    with pytest.raises(ConfigError, match="atoms"):
        Log.from_arrays(**PLAIN, atoms=atoms)


def test_atoms_of_discrete_actions_are_refused() -> None:
    whole = {**PLAIN, "action": np.arange(6) % 2, "bounds": None}
    with pytest.raises(
        LogError, match=r"found: atoms 0, 1 of discrete actions\n  expected: continuous actions\n  fix: set bounds"
    ):
        Log.from_arrays(**whole, atoms=[0, 1])
    assert Log.from_arrays(**{**whole, "bounds": (-1.0, 2.0)}, atoms=[0, 1]).atoms == (0.0, 1.0)


def test_logs_of_different_atoms_are_not_joined() -> None:
    logs = [Log.from_arrays(**PLAIN, atoms=atoms) for atoms in ([0.0], [0.5])]
    assert concat([logs[0], logs[0]]).atoms == (0.0,)
    with pytest.raises(LogError, match=r"atoms is .*fix: declare the same atoms= in both mappings"):
        concat(logs)
