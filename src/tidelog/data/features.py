"""Observations as a table of features: the columns of the source in its own units and labels.

Letters: `B` rows, `C` columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.io.export import column_labels
from tidelog.errors import SpecError
from tidelog.types import Codes, Image, Leaf, Spec, Vector, lists_among

if TYPE_CHECKING:
    import polars as pl


def feature_table(spec: Spec, leaves: Mapping[str, Values]) -> pl.DataFrame:
    """Return the raw columns [B, C] of observations by leaf, in the order of the spec; SpecError for a picture.

    Numbers are float64, missing ones NaN instead of their fill. Codes with labels are text, or whole numbers if every
    label is one; codes without labels are whole numbers. The numbers of a column of lists are `name_0`, `name_1`, ...,
    because XGBoost and LightGBM refuse brackets in names.
    """
    import polars as pl

    columns: dict[str, Any] = {}
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Image):
            raise SpecError(
                f"observation '{name}' is a picture, expected columns of a table. fix: pass an object with "
                "probabilities(observation, mask), which is given the picture as an array"
            )
        for label, values in _columns(name, leaf, np.asarray(leaves[name])):
            while label in columns:
                label += "_"
            columns[label] = values
    return pl.DataFrame(columns)


def _columns(name: str, leaf: Leaf, values: Values) -> list[tuple[str, Values]]:
    """Return the columns of a leaf with their labels, without the flags of filled values."""
    labels = column_labels(name, leaf, values.shape[1])
    listed = {label: f"{base}_{place}" for base, several in lists_among(labels).items()
              for place, label in enumerate(several) if f"{base}_{place}" not in labels}  # fmt: skip
    labels = [listed.get(label, label) for label in labels]
    if isinstance(leaf, Codes):
        return [(label, _labelled(leaf, place, values[:, place])) for place, label in enumerate(labels)]
    fills = leaf.fills if isinstance(leaf, Vector) else ()
    flags = {f"{filled} missing": listed.get(filled, filled) for filled, _ in fills}
    columns = {label: values[:, place].astype(np.float64) for place, label in enumerate(labels) if label not in flags}
    for flag, filled in flags.items():
        if flag in labels:
            columns[filled][values[:, labels.index(flag)] != 0.0] = np.nan
    return list(columns.items())


def _labelled(leaf: Codes, place: int, codes: Values) -> Values:
    """Return the labels of codes [B], as whole numbers if every label is one."""
    words = leaf.vocabularies[place] if leaf.vocabularies else ()
    if not words:
        return codes.astype(np.int64)
    whole = all(word.lstrip("-").isdecimal() and len(word) < 19 and str(int(word)) == word for word in words)
    labels = np.asarray([int(word) for word in words]) if whole else np.asarray(words, object)
    return np.asarray(labels[codes])
