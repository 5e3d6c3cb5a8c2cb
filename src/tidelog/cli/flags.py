"""Conversion of dataclasses and hyper-parameters to flags, and of files to defaults."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import tyro

from tidelog.errors import ConfigError, nearest
from tidelog.training.runs.options import options_of

T = TypeVar("T")
Sources: TypeAlias = Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction]  # `--data A B --data C`
# `--data A --data B`, in commands with arguments without a flag, which would be taken for further files
Repeated: TypeAlias = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


def parse(cls: type[T], words: Sequence[str], command: str, default: Any = None) -> T:
    """Parse flags into a dataclass; an unknown flag ends the process with code 2 and names the nearest known flag."""
    parsed: T = tyro.cli(
        cls, args=list(words), prog=f"tidelog {command}", default=default, config=(tyro.conf.OmitArgPrefixes,)
    )
    return parsed


def source_of(named: Sources | Repeated, flag: str) -> str | list[str]:
    """The one source, or the list of several, that a flag or arguments name; ConfigError for none."""
    sources = [one for value in named for one in ([value] if isinstance(value, str) else value)]
    if not sources or "" in sources:
        raise ConfigError(f"{flag} names no file. fix: name a file, a folder of tables or a glob")
    return sources[0] if len(sources) == 1 else sources


def flags_of(algorithm: type[Any], base: type[Any]) -> type[Any]:
    """A dataclass with the fields of `base` and one field for every hyper-parameter that has a text form."""
    fields = [
        (field.name, _flag_type(field), dataclasses.field(default=_flag_default(field)))
        for field in dataclasses.fields(algorithm)
        if is_flag(field)
    ]
    flags = dataclasses.make_dataclass(f"{base.__name__}{algorithm.__name__}", fields, bases=(base,), kw_only=True)
    flags.__doc__ = base.__doc__
    return flags


def verb_flags(verb: str, base: type[Any], **defaults: Any) -> type[Any]:
    """A dataclass with the fields of `base` and a flag for every option of a verb ("fit", "learn", "finetune")."""
    own = {field.name for field in dataclasses.fields(base)}
    fields = []
    for one in options_of(verb):
        kind: Any = one.metadata["flag"]
        if kind is not None and one.name not in own:
            flag = Annotated[kind, tyro.conf.arg(help=one.metadata["help"])]
            default = dataclasses.field(default=defaults.get(one.name, _option_default(one)))
            fields.append((one.name, flag, default))
    flags = dataclasses.make_dataclass(base.__name__, fields, bases=(base,), kw_only=True)
    flags.__doc__ = base.__doc__
    return flags


def _option_default(option: dataclasses.Field[Any]) -> Any:
    if option.metadata["flag"] == tuple[str, ...]:
        return ()
    if option.default is dataclasses.MISSING or option.name == "scale":
        return 1 if option.name == "seeds" else None
    return bool(option.default) if option.metadata["flag"] is bool else option.default


def options_in(flags: Any, verb: str) -> dict[str, Any]:
    """The options of a verb that were set as flags, as its keyword arguments; ConfigError for malformed pairs."""
    options = {one.name: getattr(flags, one.name) for one in options_of(verb) if hasattr(flags, one.name)}
    options["evaluate"] = episodes_of(options["evaluate"])
    if "warm_start" in options:
        options["warm_start"] = pairs(options["warm_start"], "PART=RUN, such as critic=runs/iql")
    return options


def episodes_of(values: tuple[str, ...]) -> dict[str, int]:
    """Parse `["Pendulum-v1=10"]` into a mapping; ConfigError states the expected form."""
    expected = "NAME=EPISODES, such as Pendulum-v1=10"
    counts = pairs(values, expected)
    for name, count in counts.items():
        if not count.isdigit():
            raise ConfigError(f"'{name}={count}': expected {expected}")
    return {name: int(count) for name, count in counts.items()}


def is_flag(field: dataclasses.Field[Any]) -> bool:
    """Whether a hyper-parameter has a text form: it is not a custom module."""
    return not field.metadata.get("own")


def _flag_type(field: dataclasses.Field[Any]) -> Any:
    choices = field.metadata.get("choices")
    kind: Any = Literal[tuple(choices)] if choices else field.metadata["type"]
    if field.metadata["optional"] and not choices:
        kind = kind | None
    return Annotated[kind, tyro.conf.arg(help=field.metadata["help"])]


def _flag_default(field: dataclasses.Field[Any]) -> Any:
    for name, choice in (field.metadata.get("choices") or {}).items():
        if choice is field.default:
            return name
    return field.default


def read_config(path: str | None, known: type[Any], words: Sequence[str] = ()) -> list[str]:
    """Read a TOML file as flags, keys with `-` or `_`; ConfigError for an unknown key.

    These flags precede the `words` of the command line, which therefore win; both are checked in the same way. Files of
    a log are not added to those of the command line.
    """
    if path is None:
        return []
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    names = [field.name for field in dataclasses.fields(known) if field.name != "config"]
    named = {word.split("=")[0] for word in words}
    flags = []
    for key, value in content.items():
        if key.replace("-", "_") not in names:
            raise ConfigError(f"{path} has the unknown key '{key}': {nearest(key, names)}")
        flag = f"--{key.replace('_', '-')}"
        if flag == "--data" and flag in named:
            continue
        if isinstance(value, bool):
            flags.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            flags += [flag, *map(str, value)] if isinstance(value, list) else [f"{flag}={value}"]
    return flags


def peek(words: Sequence[str], flag: str) -> str | None:
    """The last value of a flag, read before parsing because it changes other defaults; None if absent."""
    value = None
    for i, word in enumerate(words):
        if word == flag and i + 1 < len(words):
            value = words[i + 1]
        if word.startswith(flag + "="):
            value = word[len(flag) + 1 :]
    return value


def pairs(values: Sequence[str], what: str) -> dict[str, str]:
    """Parse `["a=1", "b=2"]` into a mapping; ConfigError states the expected form."""
    parsed = {}
    for value in values:
        name, separator, right = value.rpartition("=")
        if not separator or not name or not right:
            raise ConfigError(f"'{value}': expected {what}")
        parsed[name] = right
    return parsed


def with_defaults(cls: type[T], values: Mapping[str, Any]) -> T | None:
    """An instance of a flags dataclass with other defaults; required fields stay required."""
    if not values:
        return None
    required = {f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}  # type: ignore[arg-type]
    return cls(**{**dict.fromkeys(required, tyro.MISSING), **values})
