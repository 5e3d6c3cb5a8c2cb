"""Files that tidelog writes as JSON and reads back: plain values, then records with types and limits.

What writes a file declares its record (a `msgspec.Struct`) beside it. Nothing is converted between types. An error
names the file, the field, what was expected, and the fix.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from tidelog._files import parse_saved, read_regular
from tidelog.errors import CheckpointError, TidelogError

Record = TypeVar("Record")
LARGEST = 2**53  # whole numbers up to here are exact in every reader of JSON
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
RESTORE = "restore the file"
_PLACE = re.compile(r"(.*) - at `(key in )?\$(.*)`", re.DOTALL)


def decode_file(
    path: Path,
    kind: type[Record],
    fix: str = RESTORE,
    *,
    where: str | None = None,
    nan: bool = False,
) -> Record:
    """Return the record that a JSON file holds, as `decode`; CheckpointError also if the file cannot be read.

    `where` replaces the path in the message about its content.
    """
    try:
        content = read_regular(path)
    except OSError as problem:
        raise CheckpointError(f"{path} cannot be read: {problem}", fix=fix) from problem
    return decode(content, kind, where or str(path), CheckpointError, fix, nan=nan)


def decode(
    text: str | bytes,
    kind: type[Record],
    where: str,
    error: type[TidelogError] = CheckpointError,
    fix: str = RESTORE,
    *,
    nan: bool = False,
) -> Record:
    """Return the record that JSON text holds; `error`, with the name of the file and this fix, for any other text.

    What `parse_saved` refuses is refused.
    """
    try:
        values = parse_saved(text, nan=nan)
    except ValueError as problem:
        raise error(f"{where} cannot be read: {problem}", fix=fix) from problem
    return typed(values, kind, where, error, fix)


def typed(
    values: Any, kind: type[Record], where: str, error: type[TidelogError] = CheckpointError, fix: str = RESTORE
) -> Record:
    """Return plain values as a record; `error` names the field that has another type or is out of range."""
    try:
        return msgspec.convert(values, kind, strict=True, str_keys=True)
    except (msgspec.ValidationError, TidelogError, ValueError, OverflowError, RecursionError) as problem:
        match = _PLACE.fullmatch(str(problem))
        inner = problem.__cause__ if isinstance(problem.__cause__, TidelogError) else problem
        text = inner.problem if isinstance(inner, TidelogError) else match[1] if match else str(problem)
        found = f"{match[3].lstrip('.') or 'it'}: {text}" if match else text
        raise error(f"{where}: {found[:300]}", fix=fix) from problem


def to_plain(value: Any) -> Any:
    """Dictionaries and lists of dataclasses and named tuples; a number that is not finite is None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [to_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def from_plain(kind: Any, value: Any) -> Any:
    """Return a value of this type from its plain form (`to_plain`); KeyError, TypeError or ValueError otherwise."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is UnionType:  # with None
        return None if value is None else from_plain(arguments[0], value)
    if origin is float:
        value = np.nan if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"expected a number, found {value!r}")
        return float(value)
    if origin is np.ndarray or (origin is tuple and not isinstance(value, list)):
        if not isinstance(value, list):
            raise TypeError(f"expected a list, found {value!r}")
        return np.array([from_plain(float, one) for one in value])
    if origin is tuple:
        return tuple(from_plain(arguments[0], one) for one in value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"expected one of {', '.join(arguments)}, found {value!r}")
        return value
    if origin in (str, int, bool, Mapping):
        if not isinstance(value, origin) or (origin is int and isinstance(value, bool)):
            raise TypeError(f"expected {origin.__name__}, found {value!r}")
        return value
    hints, defaults = get_type_hints(origin), getattr(origin, "_field_defaults", None)
    if defaults is None:
        defaults = {one.name for one in dataclasses.fields(origin) if one.default is not dataclasses.MISSING}
    names = [name for name in hints if name in value or name not in defaults]
    parts = {}
    for name in names:
        try:
            parts[name] = from_plain(hints[name], value[name])
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from error
    return origin(**parts)


RENAMED = {  # hyper-parameters and options of runs in files of earlier versions
    "target_rate": "tau",
    "critics": "num_critics",
    "environments": "num_envs",
    "pieces": "num_chunks",
    "products": "matmul_precision",
    "every": "eval_every",
    "keep": "keep_checkpoints",
    "best": "best_metric",
    "together": "vmap",
}


def renamed(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return values by the names of today: an old name that is none of the `known` ones is replaced."""
    return {name if name in known else RENAMED.get(name, name): value for name, value in values.items()}
