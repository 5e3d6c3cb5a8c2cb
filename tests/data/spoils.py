"""Two tables with every role, and one way to break a row for each error that names rows; the rest stays a log.

Each error spoils the first or the last row of an episode, because a row taken out of the middle leaves a neighbour
whose next observation contradicts the row that then follows.
"""

from collections.abc import Mapping
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tidelog.data.columns import Columns

EPISODES, LENGTH = 14, 4
PLACES = ((3, 9), (6, 11))  # the episodes that the first and the second error of a pair spoil
Cell = tuple[str, object]


class Spoil(NamedTuple):
    """An error: its check, the column it names, cells to set, and where: 0 the first row of an episode, -1 the last."""

    check: str
    column: str
    cells: tuple[Cell, ...]
    place: int = 0
    mapping: Mapping[str, Any] = {}
    in_text: str | None = None  # the check that finds it in a file of text, if that is another

    def name(self, text: bool) -> str:
        return f"{self.in_text if text and self.in_text else self.check} in '{self.column}'"


ROLES: dict[str, Any] = {
    "observation": ["age", "sofa", "ward"],
    "next_observation": ["next_age", "next_sofa", "next_ward"],
    "vocabularies": {"ward": ["icu", "er", "home"]}, "action": "dose", "actions": 3, "reward": "r",
    "episode": "patient", "step": "hour", "terminated": "died", "truncated": "left", "propensity": "p", "weight": "w",
    "time": "t", "cluster": "who", "action_mask": "m", "next_action_mask": "n", "extra": ["note"],
}  # fmt: skip
CONTINUOUS = {"action": "dose", "actions": None, "bounds": [0, 2], "action_mask": None, "next_action_mask": None}
BY_TIME = {"step": None}
SPOILS = [
    Spoil("missing value", "age", (("age", None),)),
    Spoil("missing value", "ward", (("ward", None),)),
    Spoil("missing value", "patient", (("patient", None),)),
    Spoil("missing value", "patient", (("patient", None),), -1),
    Spoil("missing value", "hour", (("hour", None),)),
    Spoil("missing value", "hour", (("hour", None),), -1),
    Spoil("missing value", "who", (("who", None),)),
    Spoil("missing value", "died", (("died", None),), -1),
    Spoil("missing value", "next_age", (("next_age", None),)),
    Spoil("non-numeric text", "sofa", (("sofa", "sixty"),)),
    Spoil("non-numeric text", "hour", (("hour", "noon"),)),
    Spoil("non-numeric text", "dose", (("dose", "two"),)),
    Spoil("NaN or infinity", "age", (("age", "nan"),)),
    Spoil("NaN or infinity", "hour", (("hour", "nan"),)),
    Spoil("NaN or infinity", "t", (("t", "inf"),)),
    Spoil("flag neither true nor false", "died", (("died", 7),), 0, {}, "non-numeric text"),
    Spoil("changing shapes", "m", (("m", "1,1"),)),
    Spoil("unknown category", "ward", (("ward", "attic"),)),
    Spoil("action out of range", "dose", (("dose", 3),)),
    Spoil("action out of bounds", "dose", (("dose", 2.5),), 0, CONTINUOUS),
    Spoil("logged action masked out", "m", (("dose", 1), ("m", "1,0,1"))),
    Spoil("mask allows nothing", "m", (("m", "0,0,0"),)),
    Spoil("propensity out of range", "p", (("p", 0),)),
    Spoil("negative weight", "w", (("w", -1),)),
    Spoil("duplicate step", "hour", (("hour", LENGTH - 2),), -1),
    Spoil("steps cannot be ordered", "t", (("t", None),), 0, BY_TIME),
    Spoil("steps cannot be ordered", "t", (("t", LENGTH - 2),), -1, BY_TIME),
    Spoil("cluster changes within an episode", "who", (("who", "stranger"),), -1),
    Spoil("terminated before the last row", "died", (("died", 1),)),
    Spoil("truncated before the last row", "left", (("left", 1),)),
    Spoil("next observation contradicts the following row", "next_age", (("next_age", 99),)),
    Spoil("next mask contradicts the following row", "n", (("n", "1,0,0"),)),
]  # fmt: skip


def together(one: Spoil, other: Spoil) -> bool:
    """Whether one mapping can have both errors."""
    columns = Columns.from_mapping({**ROLES, **one.mapping, **other.mapping})
    named = {name for names in columns.used().values() for name in names}
    discrete = any(spoil.check == "action out of range" for spoil in (one, other))
    return all(spoil.column in named for spoil in (one, other)) and not (discrete and columns.actions is None)


def repeats(error: Spoil) -> bool:
    """Whether two rows are told apart only by their order in the file."""
    return error.cells[0] in (("hour", LENGTH - 2), ("t", LENGTH - 2))


PAIRS = [(one, other) for one, other in combinations_with_replacement(SPOILS, 2) if together(one, other)]


def wards(folder: Path, mixed: str = "") -> pl.DataFrame:
    """A clean table of all roles; its pictures go to `folder`.

    `mixed`: "rows" in a random order, "episodes" mixed with each other but each in its order, or none.
    """
    rng = np.random.default_rng(0)
    rows = EPISODES * LENGTH
    step, episode = np.arange(rows) % LENGTH, np.arange(rows) // LENGTH
    last = step == LENGTH - 1
    age, sofa, ward = (rng.integers(0, top, rows + 1) for top in (80, 24, 3))
    words = np.asarray(["icu", "er", "home"])[ward]
    frame = pl.DataFrame(
        {
            "patient": [f"p{one}" for one in episode],
            "hour": step,
            "t": step.astype(float),
            **{"age": age[:-1], "sofa": sofa[:-1], "ward": words[:-1]},
            **{"next_age": age[1:], "next_sofa": sofa[1:], "next_ward": words[1:]},
            "dose": rng.integers(0, 3, rows),
            "m": "1,1,1",
            "n": "1,1,1",
            "r": rng.normal(size=rows).round(3),
            "died": (last & (episode % 2 == 0)).astype(int),
            "left": (last & (episode % 2 == 1)).astype(int),
            "p": rng.uniform(0.1, 1, rows).round(3),
            "w": rng.uniform(0.1, 1, rows).round(3),
            "who": [f"person {one // 2}" for one in episode],
            "note": rng.integers(0, 5, rows),
        }
    )
    keys = rng.random((EPISODES, LENGTH))
    keys = keys if mixed == "rows" else np.sort(keys)
    return frame[np.argsort(keys.reshape(-1))] if mixed else frame


def spoil(frame: pl.DataFrame, *errors: Spoil) -> tuple[pl.DataFrame, dict[int, Spoil]]:
    """The table as text with every error in two episodes, and each offending row (from 1) with its error."""
    patients, hours = frame["patient"].to_numpy(), frame["hour"].to_numpy()
    texts = {name: frame[name].cast(pl.String).to_list() for name in frame.columns}
    offending = {}
    for error, episodes in zip(errors, PLACES, strict=False):
        for episode in episodes:
            (row,) = np.flatnonzero((patients == f"p{episode}") & (hours == error.place % LENGTH))
            offending[int(row) + 1] = error
            for name, value in error.cells:
                texts[name][row] = None if value is None else str(value)
    return pl.DataFrame(texts, schema=dict.fromkeys(texts, pl.String)), offending


def typed(frame: pl.DataFrame) -> pl.DataFrame:
    """The same cells as numbers, in every column where all of them are."""
    columns = []
    for column in frame.get_columns():
        casts = (column.cast(kind, strict=False) for kind in (pl.Int64, pl.Float64))
        fits = [cells for cells in casts if cells.null_count() == column.null_count()]
        columns.append(fits[0] if fits else column)
    return pl.DataFrame(columns)
