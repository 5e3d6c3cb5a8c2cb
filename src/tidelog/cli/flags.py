"""Conversion of dataclasses and hyper-parameters to flags, and of files to defaults.

The word that stands for a value in help is in the type of its field: `Annotated[str, "FILE"]`, or `File` below.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import itertools
import json
import os
import re
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import tyro

from tidelog._files import finite, read_text, replaced_copy
from tidelog._text import printable, wrapped
from tidelog.data.columns import SHARES, Columns
from tidelog.data.read import Source, is_table
from tidelog.errors import ConfigError, nearest
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import NAMED, Roles, read_by_roles
from tidelog.schema import RENAMED as NEW_NAMES
from tidelog.schema import renamed
from tidelog.training.options import options_of

T = TypeVar("T")
Flags = TypeVar("Flags", bound="OutputFlags")
File: TypeAlias = Annotated[str, "FILE"]
Folder: TypeAlias = Annotated[str, "FOLDER"]
RunFolder: TypeAlias = Annotated[str, "RUN"]
RunOrPolicy: TypeAlias = Annotated[str, "RUN|POLICY"]
Column: TypeAlias = Annotated[str, "COLUMN"]
Env: TypeAlias = Annotated[str, "ENV"]
EnvNames: TypeAlias = Annotated[tuple[Env, ...], tyro.conf.UseAppendAction]  # `--env A --env B`
LogName: TypeAlias = Annotated[str, "LOG"]
OnEngine: TypeAlias = Annotated[str, tyro.conf.arg(metavar="ENGINE")]
Sources: TypeAlias = Annotated[tuple[tuple[LogName, ...], ...], tyro.conf.UseAppendAction]  # `--data A B --data C`
Switch: TypeAlias = Annotated[bool, tyro.conf.FlagCreatePairsOff]  # in a group: `--flag` without `--no-flag`
# `--data A --data B`, in commands with arguments without a flag, which would be taken for further files
Repeated: TypeAlias = Annotated[tuple[LogName, ...], tyro.conf.UseAppendAction]

RENAMED = {  # flags of earlier versions
    **{"--log": "--data", "--format": "--json", "--deterministic": "--mode"},
    **{f"--{old}".replace("_", "-"): f"--{new}".replace("_", "-") for old, new in NEW_NAMES.items()},
}
NUMBER = "NUMBER"
VERSION = "version"  # a flag of every command, which prints the version before the command begins
OUTPUT = ("quiet", "json", VERSION)
HELP, HELP_ALL = ("-h", "--help"), "--help-all"
OPTIONS = "_options"  # ends the name of a field that holds a group of flags, under the rest of its name


@dataclasses.dataclass(kw_only=True)
class OutputFlags:
    """How a command prints: flags that every command with a result has."""

    quiet: bool = False
    """print the result only, without notes and progress"""
    json: bool = False
    """print the result as JSON; everything else goes to standard error"""


def parse(cls: type[T], words: Sequence[str], command: str, defaults: Mapping[str, Any] | None = None) -> T:
    """Parse flags into a dataclass; an unknown flag ends the process with code 2 and names the nearest known flag.

    `defaults` replace those of the fields. ConfigError for a flag that has another name now. The flags of a group are
    attributes of the result too. A class with `common` names the fields that `--help` shows; `--help-all` shows all.
    """
    known = flag_names(cls)
    for word in (word.split("=")[0] for word in words):
        new = RENAMED.get(word)
        if new is not None and new[2:].replace("-", "_") in known:
            raise ConfigError(f"{word} has another name", fix=f"write {new}")
    common: Collection[str] = getattr(cls, "common", ()) if any(word in HELP for word in words) else ()
    words = [HELP[1] if word == HELP_ALL else word for word in words]
    shown = _shown(cls, defaults or {}, common=common)
    if common:
        rare = len(known) - len(flag_names(shown)) + 1  # without --version
        shown.__doc__ = f"{cls.__doc__}\n\n`tidelog {command} {HELP_ALL}` shows {rare} more flags."
    terminal = os.environ.get("TERM")
    if os.environ.get("NO_COLOR"):
        os.environ["TERM"] = "dumb"  # tyro asks the kind of terminal alone
    try:
        parsed: Any = tyro.cli(shown, args=list(words), prog=f"tidelog {command}", config=(tyro.conf.OmitArgPrefixes,))
    finally:
        os.environ.pop("TERM", None)
        os.environ |= {} if terminal is None else {"TERM": terminal}
    groups = {name: kind(**vars(getattr(parsed, name))) for name, kind in _nested(cls).items()}
    values = {one.name: groups.get(one.name, getattr(parsed, one.name)) for one in dataclasses.fields(cast("Any", cls))}
    options = cls(**values)
    for group in groups.values():
        vars(options).update(vars(group))
    return options


def flag_names(cls: type[Any]) -> list[str]:
    """The names of a dataclass's fields, and of the fields of its groups of flags."""
    nested = _nested(cls)
    own = [one.name for one in dataclasses.fields(cls) if one.name not in nested]
    return [*own, *(one.name for kind in nested.values() for one in dataclasses.fields(kind))]


def _nested(cls: type[Any]) -> dict[str, type[Any]]:
    """The fields that are dataclasses: groups of flags."""
    hints = get_type_hints(cls)
    return {one.name: hints[one.name] for one in dataclasses.fields(cls) if dataclasses.is_dataclass(hints[one.name])}


def _shown(
    cls: type[Any], defaults: Mapping[str, Any], is_group: bool = False, common: Collection[str] = ()
) -> type[Any]:
    """A dataclass with the same fields, with help, the words for values, and other defaults; only `common` ones."""
    hints, nested, texts, fields = get_type_hints(cls, include_extras=True), _nested(cls), _texts(cls), []
    for one in dataclasses.fields(cls):
        if common and one.name not in common:
            continue
        hint, default, factory = hints[one.name], defaults.get(one.name, one.default), cast("Any", one.default_factory)
        if one.name in nested:
            factory = _shown(nested[one.name], defaults, is_group=True)
            hint = Annotated[factory, tyro.conf.arg(name=one.name.removesuffix(OPTIONS), help=texts.get(one.name, ""))]
        elif default is False and (not is_group or tyro.conf.FlagCreatePairsOff in getattr(hint, "__metadata__", ())):
            hint = Annotated[hint, tyro.conf.FlagCreatePairsOff, _argument(hint, None, texts.get(one.name))]
        else:
            hint = Annotated[hint, _argument(hint, default, texts.get(one.name))]
        field: Any = dataclasses.field(default=default, default_factory=factory, kw_only=one.kw_only)
        fields.append((one.name, hint, field))
    if not is_group:
        hint = Annotated[bool, tyro.conf.FlagCreatePairsOff, _argument(bool, None, "print the version of tidelog")]
        fields.append((VERSION, hint, dataclasses.field(default=False, kw_only=True)))
    missing = dataclasses.MISSING  # a stable order: first what is needed
    fields.sort(key=lambda one: (one[0] in OUTPUT, {one[2].default, one[2].default_factory} != {missing}))
    frozen = cls.__dataclass_params__.frozen
    shown = dataclasses.make_dataclass(cls.__name__, fields, frozen=frozen)
    shown.__doc__ = "" if is_group else cls.__doc__
    return shown


def _texts(cls: type[Any]) -> dict[str, str]:
    """The help of the fields that a dataclass declares in its source: the text below a field, or the comment beside it.

    Nothing is known of a dataclass that was made from others; its fields have their help in their types.
    """
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except OSError:
            continue
        texts |= re.findall(r"^    (\w+): .*?  # (.+)$", source, re.MULTILINE)
        body = cast("ast.ClassDef", ast.parse(source).body[0]).body
        for field, below in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                texts[cast("ast.Name", field.target).id] = " ".join(str(below.value.value).split())
    return texts


def _argument(hint: Any, default: Any, text: str | None) -> Any:
    """The word for a value and its help; a default of None, or of nothing, is not shown."""
    kind, *marks = (get_args(hint)[0], *hint.__metadata__) if get_origin(hint) is Annotated else (hint,)
    text = next((mark.help for mark in marks if getattr(mark, "help", None)), text)
    word, required = _word(hint), default is dataclasses.MISSING
    if word is not None and NoneType in get_args(kind) and default is not None:
        word += "|None"
    note = "" if default is None or default == () or (required and get_origin(kind) is tuple) else None
    if tyro.conf.UseAppendAction in marks:
        note = f"({'required; ' if required else ''}repeatable)"
    name = next((mark.name for mark in marks if getattr(mark, "name", None)), None)
    return tyro.conf.arg(name=name, metavar=word, help=text, help_behavior_hint=note)


def _word(hint: Any) -> str | None:
    """The word for the value of a type in help; None for a switch and for what tyro knows better."""
    if get_origin(hint) is Annotated:
        words = [one for one in hint.__metadata__ if isinstance(one, str)]
        if tyro.conf.UseAppendAction in hint.__metadata__:
            return _word(get_args(get_args(hint)[0])[0])
        return words[-1] if words else _word(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return "|".join(filter(None, (_word(one) for one in get_args(hint) if one is not NoneType)))
    if get_origin(hint) is tuple:
        one = _word(get_args(hint)[0])
        return f"{one} [{one} ...]"
    if get_origin(hint) is Literal:
        return "{" + ",".join(map(str, get_args(hint))) + "}"
    return NUMBER if hint in (int, float) else None


def source_of(named: Sources | Repeated, flag: str) -> str | list[str]:
    """The one source, or the list of several, that a flag or arguments name; ConfigError for none."""
    sources = [one for value in named for one in ([value] if isinstance(value, str) else value)]
    if not sources or "" in sources:
        raise ConfigError(f"{flag} names no file", fix="name a file, a folder of tables or a glob")
    return sources[0] if len(sources) == 1 else sources


def verb_flags(
    verb: str,
    base: type[Any],
    settings: Mapping[str, Sequence[dataclasses.Field[Any]]] | None = None,
    *,
    without: Collection[str] = (),
    **defaults: Any,
) -> type[Any]:
    """A dataclass with the fields of `base` and a flag for every option of a verb ("fit", "learn", "finetune").

    The options `without` have no flag. `settings` are hyper-parameters by their groups, which follow the few options
    that most runs set; the other options are the last group.
    """
    own, first, groups = {field.name for field in dataclasses.fields(base)}, list[Any](), dict[str, list[Any]]()

    def add(group: list[Any], one: dataclasses.Field[Any], kind: Any, default: Any) -> None:
        hint = Annotated[kind, tyro.conf.arg(help=one.metadata["help"])]
        group.append((one.name, hint, dataclasses.field(default=default)))

    for name, members in (settings or {}).items():
        groups[name] = []
        for one in members:
            kind: Any = one.metadata["type"] | None if one.metadata["optional"] else one.metadata["type"]
            default = one.default
            if choices := one.metadata.get("choices"):
                kind = Literal[tuple(choices)]
                default = next((word for word, choice in choices.items() if choice is default), default)
            add(groups[name], one, kind, default)
    for one in options_of(verb):
        kind = one.metadata["flag"]
        if kind is None or one.name in own or one.name in without:
            continue
        default = bool(one.default) if kind is bool else one.default
        if get_origin(kind) is tuple:
            default = ()
        elif default is dataclasses.MISSING or one.name in ("scale", "selection_share"):
            default = 1 if one.name == "seeds" else None
        group = first if one.metadata["first"] else groups.setdefault("run", [])
        add(group, one, kind, defaults.get(one.name, default))
    for name, fields in groups.items():
        if fields:
            made = dataclasses.make_dataclass(name, fields, kw_only=True)
            first.append((f"{name}{OPTIONS}", made, dataclasses.field(default_factory=made)))
    flags = dataclasses.make_dataclass(base.__name__, first, bases=(base,), kw_only=True)
    flags.__doc__ = base.__doc__
    return flags


def options_in(flags: Any, verb: str) -> dict[str, Any]:
    """The options of a verb that were set as flags, as its keyword arguments; ConfigError for malformed pairs."""
    options = {one.name: getattr(flags, one.name) for one in options_of(verb) if hasattr(flags, one.name)}
    expected = "NAME=EPISODES, such as Pendulum-v1=10"
    options["evaluate"] = whole_numbers(pairs(options["evaluate"], expected), expected)
    if "devices" in options:
        options["devices"] = devices_of(options["devices"])
    if "warm_start" in options:
        options["warm_start"] = pairs(options["warm_start"], "PART=RUN, such as critic=runs/iql")
    return options


def whole_numbers(words: Mapping[str, str], expected: str) -> dict[str, int]:
    """Return whole numbers by name; ConfigError states the expected form."""
    for name, word in words.items():
        if not word.isdigit():
            raise ConfigError(f"'{name}={word}'", expected)
    return {name: int(word) for name, word in words.items()}


def devices_of(values: tuple[str, ...]) -> int | dict[str, int] | None:
    """Parse `["8"]` into a number, or `["members=4", "batch=2"]` into a mapping; ConfigError states the forms."""
    if len(values) == 1 and values[0].isdigit():
        return int(values[0])
    expected = "--devices N, or numbers of devices by axis, such as --devices members=4 batch=2"
    return whole_numbers(pairs(values, expected), expected) or None


def read_config(path: str | None, known: type[Any], words: Sequence[str] = ()) -> list[str]:
    """Read a TOML file as flags, keys with `-` or `_`; ConfigError for an unknown key.

    These flags precede the `words` of the command line, which therefore win; both are checked in the same way. Files of
    a log are not added to those of the command line.
    """
    if path is None:
        return []
    try:
        content = tomllib.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    names = [name for name in flag_names(known) if name != "config"]
    named = {word.split("=")[0] for word in words}
    flags = []
    switches = [one.name for one in dataclasses.fields(known) if one.default is False]
    for key, value in content.items():
        (name,) = renamed({key.replace("-", "_"): value}, names)
        if name not in names:
            raise ConfigError(f"{path} has the unknown key '{key}': {nearest(key, names)}")
        flag = f"--{name.replace('_', '-')}"
        if flag == "--data" and flag in named:
            continue
        if isinstance(value, bool):
            if value or name not in switches:  # a switch is off without its flag
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
            raise ConfigError(f"'{value}'", what)
        parsed[name] = right
    return parsed


# Common flags of training commands: environments, run folders and metric sinks.

SinkName = Annotated[str, "NAME[:TARGET]"]


@dataclass(kw_only=True)
class RunFlags(OutputFlags):
    """Flags of every command that begins a run."""

    out: Folder | None = None
    """the run folder; default: runs/<algorithm>, with a number if it exists"""
    overwrite: bool = False
    """replace the run in the folder of --out"""
    sink: tuple[SinkName, ...] = ()
    """also show the run in a tracker, such as mlflow, or mlflow:URI for another than its default one"""


@dataclass(kw_only=True)
class EnvironmentFlags(RunFlags):
    """Flags of every run in an environment."""

    env: Env
    """a built-in environment, a functional one (jax:NAME) or a gymnasium id"""


def free_folder(name: str, parent: str = "runs") -> Path:
    """`runs/name`, or `runs/name-N` with the first free number."""
    folder, number = Path(parent) / name, 1
    while folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        number += 1
        folder = Path(parent) / f"{name}-{number}"
    return folder


# Flags for the columns of interaction tables.


@dataclass(kw_only=True)
class InteractionFlags:
    """Flags of interaction tables."""

    user: Column | None = None
    """the column of users"""
    item: Column | None = None
    """the column of items"""
    time: Column | None = None
    """the column of times, numbers or dates"""
    event: Column | None = None
    """the column of the kind of event"""
    reward: tuple[Annotated[str, "COLUMN|KIND=NUMBER"], ...] = ()
    """a column, or the reward of each kind of event, as KIND=NUMBER"""
    reward_unit: Annotated[str, "UNIT"] | None = None
    """the unit of rewards, such as EUR, which reports show"""
    session: Column | None = None
    """a column whose change marks a new session"""
    session_gap: Annotated[str, "NUMBER|30min"] | None = None
    """a longer pause ends a session: with a unit (s, min, h, d) for dates and epoch times; a number is in seconds for
    dates, else in the unit of the times"""
    propensity: Column | None = None
    """the column of the probability of showing the item"""
    slate: Column | None = None
    """the column of lists (or text such as a|b|c) of the shown items"""
    item_features: File | None = None
    """a table with one row per item"""
    user_features: File | None = None
    """a table with one row per user"""


def roles_of(options: InteractionFlags) -> Roles | None:
    """The roles in the flags; None without such flags, ConfigError if some are missing or contradict each other."""
    named: dict[str, Any] = {name: getattr(options, name) for name in (*NAMED, "item_features", "user_features")}
    named |= {"session_gap": options.session_gap, "reward_unit": options.reward_unit}
    if len(options.reward) == 1 and "=" not in options.reward[0]:
        named["reward"] = options.reward[0]
    elif options.reward:
        expected = "one column, or KIND=NUMBER for each kind of event, such as click=0.2 buy=1"
        try:
            named["reward"] = {kind: float(worth) for kind, worth in pairs(options.reward, expected).items()}
        except ValueError as error:
            raise ConfigError(f"--reward {' '.join(options.reward)}", expected) from error
    else:
        named["reward"] = None
    roles = {name: value for name, value in named.items() if value is not None}
    if not roles:
        return None
    missing = [f"--{name}" for name in ("user", "item", "time") if name not in roles]
    if missing:
        raise ConfigError("an interaction table needs --user, --item and --time", fix=f"add {' and '.join(missing)}")
    return Roles(**roles)


def read_from_flags(source: Source, options: InteractionFlags) -> Interactions:
    """Read interactions from a table or a saved folder; ConfigError if flags are missing or not needed."""
    roles = roles_of(options)
    if roles is not None:
        return read_by_roles(source, roles)
    paths = [str(source)] if isinstance(source, str | Path) else [str(path) for path in source]
    shown = " ".join(paths)
    if is_table(source):
        raise ConfigError(
            f"{shown} is a table without flags for its columns",
            fix=(f"add --user U --item I --time T (`tidelog log inspect --data {shlex.join(paths)}` proposes them)"),
        )
    return Interactions.load(shown)


# Printed output of commands: lines, notes, tables and JSON.

_is_quiet: ContextVar[bool] = ContextVar("_is_quiet", default=False)


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    from rich.console import Console  # slow to import, and most commands print no table
    from rich.table import Table

    table = Table(title=_cell(title), title_justify="left")
    for i, name in enumerate(head):
        table.add_column(_cell(name), justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*map(_cell, row))
    Console().print(table)


def _cell(text: str) -> Any:
    """Plain text of rich: names of users are no markup."""
    from rich.text import Text

    return Text(printable(text))


def json_only(wanted: bool) -> AbstractContextManager[Any]:
    """A context in which all printed lines and tables go to standard error, if standard output is for JSON.

    A process without standard output, such as a rank after 0, prints them nowhere.
    """
    silent = getattr(sys.stdout, "name", None) == os.devnull
    return contextlib.redirect_stdout(sys.stderr) if wanted and not silent else contextlib.nullcontext()


@contextlib.contextmanager
def output_of(quiet: bool, as_json: bool) -> Iterator[None]:
    """A context for the work of a command: `json_only`, and with `quiet` no `print_details` and `print_notes`."""
    outer = _is_quiet.set(quiet)
    try:
        with json_only(as_json):
            yield
    finally:
        _is_quiet.reset(outer)


def present(options: Flags, work: Callable[[Flags], Any]) -> int:
    """Do the work of a command in its `output_of`, print what it returns as JSON if wanted, and return exit code 0."""
    with output_of(options.quiet, options.json):
        result = work(options)
    if options.json:
        print_json(result)
    return 0


def print_json(result: Any) -> None:
    """Print a result as one JSON document; a number that is not finite is null."""
    print(printable(json.dumps(finite(result), indent=1, allow_nan=False)), flush=True)  # noqa: T201


def print_line(text: str) -> None:
    """Print plain text: on a terminal its lines are broken between words, elsewhere they stay whole."""
    print(wrapped(text, sys.stdout), flush=True)  # noqa: T201


def print_details(*lines: str) -> None:
    """Print lines that are not the result of a command: nothing with `--quiet`."""
    for line in lines if not _is_quiet.get() else ():
        print_line(line)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes for the user, one per line: nothing with `--quiet`."""
    print_details(*(f"note: {note}" for note in notes))


# What a command writes: an existing file or folder is refused, or replaced with --overwrite.

TABLES = (".csv", ".parquet")


def check_targets(
    *targets: str | Path | None, overwrite: bool, replaceable: Callable[[Path], bool] = Path.is_file
) -> None:
    """Raise ConfigError for targets that cannot be written, before anything is computed.

    An existing target needs `overwrite`, and `replaceable` says whether it is of the kind that the command writes. It
    stays until the new one is complete: what writes it replaces it in one step.
    """
    for target in (Path(target) for target in targets if target is not None):
        if target.exists() and not overwrite:
            raise ConfigError(f"{target} exists, nothing was written", fix="choose another name, or add --overwrite")
        if target.exists() and not replaceable(target):
            raise ConfigError(
                f"{target} is not of the kind that this command writes, it is not replaced", fix="choose another name"
            )
        if replaceable is Path.is_file and not target.parent.is_dir():
            raise ConfigError(f"{target} cannot be written: the folder {target.parent} does not exist")
        old = replaced_copy(target)
        if old is not None:
            raise ConfigError(
                f"{old} is what {target} was before a command that was killed",
                fix=f"rename it to {target}, or delete it",
            )


def check_tables(*targets: Path | None) -> None:
    """Raise ConfigError for a table that is not one .csv or .parquet file, such as a folder."""
    for target in (target for target in targets if target is not None):
        if target.suffix in TABLES and not target.is_dir():
            continue
        expected = f"{target}: expected a path that ends in {' or '.join(TABLES)}"
        if target.suffix and not target.is_dir():
            raise ConfigError(expected, fix="change the suffix")
        name = target.with_name((target.stem or "table") + ".parquet") if target.name else "table.parquet"
        raise ConfigError(
            f"{expected}, as all rows are written to one file", fix=f"name one output file, such as {name}"
        )


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or nothing."""
    return folder.is_dir() and ((folder / "run.json").is_file() or not any(folder.iterdir()))


# Flags that declare how the decisions of a log were drawn, in place of a column of the mapping.


@dataclass(kw_only=True)
class RandomisedFlag:
    """The flag that declares a randomised log."""

    randomised: bool = False
    """each action was drawn at random with its own share of the log, as with --propensity shares"""


@dataclass(kw_only=True)
class DeclaredFlags(RandomisedFlag):
    """Flags that declare how the decisions of a log were drawn."""

    propensity: Annotated[str, "VALUE"] | None = None
    """how decisions were drawn, if no column says it: 0.5 for every action, "{ A = 0.7, B = 0.3 }", shares (each
    action's own), or "{ shares_by = ['village'] }"; for tables also a column of recorded propensities"""


def declared_value(propensity: str | None, randomised: bool) -> Any:
    """What `--propensity` or `--randomised` declare, None without them; ConfigError for both."""
    if randomised and propensity is not None:
        raise ConfigError("--propensity and --randomised are both set", fix="set only one of them")
    if randomised:
        return SHARES
    if propensity is None:
        return None
    try:
        return tomllib.loads(f"propensity = {propensity}")["propensity"]
    except tomllib.TOMLDecodeError:
        return propensity


def with_declared(columns: str | None, value: Any) -> str | Columns | None:
    """The mapping file, or its content with another `propensity`; ConfigError for a log without a mapping."""
    if value is None:
        return columns
    if columns is None:
        raise ConfigError(
            "--propensity and --randomised are for tables with a mapping",
            fix="add --columns FILE, or judge the log with `tidelog judge --randomised`",
        )
    return dataclasses.replace(Columns.from_file(columns), propensity=value)
