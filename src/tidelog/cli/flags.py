"""Turning dataclasses and hyper-parameters into flags, and files into defaults."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from tidelog.errors import ConfigError, nearest

T = TypeVar("T")


def parse(cls: type[T], words: Sequence[str], command: str, default: Any = None) -> T:
    """Fill a dataclass from flags; unknown flags end the process with code 2 and the nearest known one."""
    parsed: T = tyro.cli(
        cls, args=list(words), prog=f"tidelog {command}", default=default, config=(tyro.conf.OmitArgPrefixes,)
    )
    return parsed


def flags_of(algorithm: type[Any], base: type[Any]) -> type[Any]:
    """A dataclass with the fields of `base` and one for every hyper-parameter that can be written as text."""
    fields = [
        (field.name, _flag_type(field), dataclasses.field(default=_flag_default(field)))
        for field in dataclasses.fields(algorithm)
        if is_flag(field)
    ]
    made = dataclasses.make_dataclass(f"{base.__name__}{algorithm.__name__}", fields, bases=(base,), kw_only=True)
    made.__doc__ = base.__doc__
    return made


def is_flag(field: dataclasses.Field[Any]) -> bool:
    """Whether a hyper-parameter can be given as text: not a module of the user's own."""
    return not field.metadata.get("own")


_KINDS: dict[str, Any] = {
    "int": int,
    "bool": bool,
    "tuple[int, ...]": tuple[int, ...],
    "tuple[float, ...]": tuple[float, ...],
}


def _flag_type(field: dataclasses.Field[Any]) -> Any:
    choices = field.metadata.get("choices")
    if choices:
        kind: Any = Literal[tuple(choices)]
    elif field.metadata["leaf"]:
        kind = float | None if "None" in str(field.type) else float
    else:
        name, _, optional = str(field.type).partition(" | ")
        kind = _KINDS[name] | None if optional else _KINDS[name]
    return Annotated[kind, tyro.conf.arg(help=field.metadata["help"])]


def _flag_default(field: dataclasses.Field[Any]) -> Any:
    for name, choice in (field.metadata.get("choices") or {}).items():
        if choice is field.default:
            return name
    return field.default


def read_config(path: str | None, known: type[Any]) -> list[str]:
    """A TOML file as the flags that it stands for, keys with `-` or `_`; ConfigError for an unknown one.

    They go before those of the command line, which win because they come later, and are checked like them.
    """
    if path is None:
        return []
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    names = [field.name for field in dataclasses.fields(known) if field.name != "config"]
    words = []
    for key, value in content.items():
        if key.replace("-", "_") not in names:
            raise ConfigError(f"{path} has the unknown key '{key}': {nearest(key, names)}")
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, *map(str, value)] if isinstance(value, list) else [f"{flag}={value}"]
    return words


def peek(words: Sequence[str], flag: str) -> str | None:
    """The last value of a flag before the others are parsed, because it changes their defaults."""
    found = None
    for i, word in enumerate(words):
        if word == flag and i + 1 < len(words):
            found = words[i + 1]
        if word.startswith(flag + "="):
            found = word[len(flag) + 1 :]
    return found


def pairs(values: Sequence[str], what: str) -> dict[str, str]:
    """`["a=1", "b=2"]` as a mapping; ConfigError says what was expected."""
    found = {}
    for value in values:
        name, separator, right = value.rpartition("=")
        if not separator or not name or not right:
            raise ConfigError(f"'{value}': expected {what}")
        found[name] = right
    return found


def with_defaults(cls: type[T], values: Mapping[str, Any]) -> T | None:
    """An instance of a flags dataclass whose defaults are replaced; required fields stay required."""
    if not values:
        return None
    required = {f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}  # type: ignore[arg-type]
    return cls(**{**dict.fromkeys(required, tyro.MISSING), **values})
