"""Read the fields of saved interactions from their folder, with checks of every array."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tidelog.data.core.columns import declared_unit
from tidelog.data.core.registry import refusal
from tidelog.data.core.report import Report
from tidelog.data.io.saved_checks import expect_array
from tidelog.data.io.storage import ColumnEntry, read_columns
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.folders import MANIFEST, Kind
from tidelog.schema import typed
from tidelog.types import Profile

ARRAYS = (
    "users", "items", "user", "item", "event", "reward", "time", "terminated", "truncated", "propensity", "slate",
    "item_features", "user_features", "scored",
)  # fmt: skip
OPTIONAL = ("propensity", "slate", "item_features", "user_features", "scored")
INTERACTIONS = Kind("interactions", 3, LogError)


def saved_fields(path: str | Path) -> dict[str, Any]:
    """Read the fields of `Interactions` from a folder of `save`; LogError names a foreign, cut or changed file."""
    folder = Path(path)
    try:
        manifest = INTERACTIONS.manifest(folder)
        file = typed(manifest, InteractionsManifest, MANIFEST, LogError)
        columns = read_columns(INTERACTIONS, folder, file.columns, manifest)
        arrays: dict[str, Any] = {name: columns.get(name) if name in OPTIONAL else columns[name] for name in ARRAYS}
        words: dict[str, Any] = {name: tuple(getattr(file.names, name)) for name in ("events", "feature_names")}
        words |= {"session_gap": file.names.session_gap, "profile": file.names.profile}
        words["item_profile"] = file.names.item_profile
        words["reward_unit"] = declared_unit(file.names.reward_unit)
        report = Report.from_json(file.report)
        _check_arrays(arrays, file.names)
    except (LogError, SpecError, ConfigError, KeyError) as error:
        if getattr(error, "report", None) is not None:  # it has a fix of its own
            raise
        found = str(error).partition(". fix: ")[0]
        message = f"an entry is missing or malformed ({found})" if isinstance(error, KeyError) else found
        advice = "copy the folder again from the original, or save the interactions again"
        refused = refusal(str(folder), "unreadable file", message, "a folder that Interactions.save wrote", advice)
        raise LogError(refused.text(), refused) from error
    origin = {"source": str(folder.absolute()), "columns": None}
    return {**arrays, **words, "report": report, "origin": origin}


class NamesFile(msgspec.Struct, forbid_unknown_fields=True):
    """The metadata of the arrays of saved interactions."""

    events: list[str]
    feature_names: list[str]
    session_gap: float | None
    profile: Profile | None
    reward_unit: str | None = None
    item_profile: Profile | None = None


class InteractionsManifest(msgspec.Struct):
    """The fields of the manifest of interactions, besides those of every folder."""

    columns: list[ColumnEntry]
    names: NamesFile
    report: dict[str, Any]


def _check_arrays(arrays: Mapping[str, Any], names: NamesFile) -> None:
    """Raise LogError unless arrays have the types and lengths of their roles, in order and in range."""
    rows, users, items = (len(arrays[name]) for name in ("item", "users", "items"))
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "users": ("iuU", (users,)), "items": ("iuU", (items,)), "user": ("i", (rows,)), "item": ("i", (rows,)),
        "event": ("i", (rows,)), "reward": ("f", (rows,)), "time": ("fM", (rows,)), "terminated": ("b", (rows,)),
        "truncated": ("b", (rows,)), "propensity": ("f", (rows,)), "scored": ("b", (rows,)),
        "item_features": ("f", (items + 1, len(names.feature_names))),
        "user_features": ("f", (users, 0 if names.profile is None else len(names.profile.columns))),
    }  # fmt: skip
    for name, (kinds, shape) in shapes.items():
        if arrays[name] is not None:
            expect_array(name, arrays[name], kinds, shape)
    slate = arrays["slate"]
    if slate is not None:
        expect_array("slate", slate, "i", (rows, slate.shape[1] if slate.ndim == 2 else 0))
    about = names.profile
    if about is not None and len({len(about.columns), len(about.words), len(about.mean), len(about.spread)}) > 1:
        raise LogError("the parts of the profile have different lengths")
    if not rows:
        raise LogError("the interactions have no events")
    user, event, item, time = arrays["user"], arrays["event"], arrays["item"], arrays["time"]
    same = user[1:] == user[:-1]
    finite = [one for one in arrays.values() if one is not None and one.dtype.kind == "f"]
    checks = {
        "users are not numbered in order": user[0] >= 0 and user[-1] < users and (user[1:] >= user[:-1]).all(),
        "items are out of range": ((item >= 1) & (item <= items)).all(),
        "events are out of range": ((event >= 1) & (event <= len(names.events))).all(),
        "slates are out of range": slate is None or ((slate >= 0) & (slate <= items)).all(),
        "numbers are not finite": all(np.isfinite(one).all() for one in finite) and not np.isnat(time).any()
        if time.dtype.kind == "M" else all(np.isfinite(one).all() for one in finite),
        "times of a user fall": (time[1:][same] >= time[:-1][same]).all(),
        "ids are repeated": all(len(np.unique(arrays[name])) == len(arrays[name]) for name in ("users", "items")),
    }  # fmt: skip
    for found, holds in checks.items():
        if not holds:
            raise LogError(found)
