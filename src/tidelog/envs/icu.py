"""ICU-Sepsis as arrays: 716 states, 25 treatments, values by linear algebra.

Choudhary, Gupta, Thomas, "ICU-Sepsis: A Benchmark MDP Built from Real Medical Data", RLC 2024, arXiv:2406.05646;
`dynamics.npz` of github.com/icu-sepsis/icu-sepsis. States 713 (death), 714 (survival) and 715 are final here; the
original moves from 713 and 714 to 715 with reward 0, which changes no value. Entering 714 has reward 1.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib.npyio import NpzFile

from tidelog.envs.tabular import Floats, Tabular, features_view
from tidelog.errors import ConfigError

FINAL = (713, 714, 715)
_ARRAYS = ("tx_mat", "r_mat", "d_0", "expert_policy", "state_cluster_centers")


def icu_sepsis(path: str | Path, observe: Literal["codes", "features"] = "codes") -> tuple[Tabular, Floats]:
    """Read `dynamics.npz`: the problem and its clinicians' policy, `[716, 25]`.

    The observation is the state's number, or with `observe="features"` the 47 cluster centres of that state.
    ConfigError if the file or one of its arrays is missing.
    """
    arrays = _read(Path(path))
    states = len(arrays["d_0"])
    final = np.zeros(states, bool)
    final[list(FINAL)] = True
    views = {"observation": features_view(arrays["state_cluster_centers"])} if observe == "features" else {}
    problem = Tabular(arrays["tx_mat"], arrays["r_mat"], arrays["d_0"], final, name="icu-sepsis", views=views)
    return problem, arrays["expert_policy"]


def _read(path: Path) -> dict[str, Floats]:
    with _open(path) as stored:
        missing = [name for name in _ARRAYS if name not in stored]
        if missing:
            raise ConfigError(f"{path} has no array {missing[0]!r}: expected ICU-Sepsis' dynamics.npz")
        return {name: stored[name] for name in _ARRAYS}


def _open(path: Path) -> NpzFile:
    try:
        stored = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        fix = "get dynamics.npz from github.com/icu-sepsis/icu-sepsis"
        raise ConfigError(f"{path} does not exist. fix: {fix}") from error
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} is not a NumPy archive: {error}") from error
    if not isinstance(stored, NpzFile):
        raise ConfigError(f"{path} is not a NumPy archive: it holds a single array")
    return stored
