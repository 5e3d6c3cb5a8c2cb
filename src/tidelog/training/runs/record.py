"""`run.json`: the settings, the data and the machine of a run; resuming a run reads it."""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import jax
import msgspec
import numpy as np

from tidelog.algorithms.core.hyperparameters import from_config, to_config
from tidelog.algorithms.names import algorithm_class, algorithm_name
from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.disk import check_own, is_temporary, replaced_copy, write_file, write_folder
from tidelog.envs.registry import check_imported, module_of
from tidelog.errors import CheckpointError, ConfigError, TidelogError
from tidelog.folders import digest
from tidelog.input_files import parse_saved, read_regular
from tidelog.recommend.interactions.log import Interactions
from tidelog.runtime.way_of_acting import Acting
from tidelog.schema import Count, Finite, typed
from tidelog.terminal_text import printable
from tidelog.training.runs.evaluation import SAMPLED
from tidelog.training.runs.lock import check_unlocked
from tidelog.training.runs.options import Options
from tidelog.training.runs.processor import processor
from tidelog.types import Catalogue, Spec

SCHEMA, FILE = 3, "run.json"
PACKAGES = ("tidelog", "jax", "jaxlib", "equinox", "optax", "numpy")


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """How a policy that was given as `start` was distilled into the members."""

    algorithm: str  # of the start policy
    decisions: Count  # of the start policy, which the members imitate
    updates: Count
    divergence: Annotated[list[Finite], msgspec.Meta(min_length=1)]  # of each member from the start policy, in nats


@dataclass(frozen=True, kw_only=True)
class RefitOf:
    """The policy whose settings a run takes over, to learn from a whole log (`refit`)."""

    run: str | None = None  # its folder, if it has one
    verdict: str | None = None  # the line on the verdict that the policy carried
    acting: Acting | None = None  # the declared way of acting of that policy


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What a run learns from: a log, an environment, or an environment after a log (fine-tuning)."""

    fingerprint: str | None = None  # of the log
    origin: dict[str, Any] | None = None  # of the log: its source and how it was read; None for a log in memory
    steps: Count = 0  # of the log
    episodes: Count = 0  # of the log
    environment: str | None = None
    named: bool = False  # whether the environment was given by its name
    start: Distillation | None = None
    finetuned: bool = False
    finetuned_from: str | None = None  # the folder of the run over the log, if it had one
    refit_of: RefitOf | None = None


class RunFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The JSON form of a record."""

    schema: int
    algorithm: str
    configs: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    options: Options
    spec: dict[str, Any]
    scaler: dict[str, Any]
    data: TrainingData
    held_out_episodes: list[str | int | float | bool]
    machine: dict[str, Any]
    sketches: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True)
class Record:
    """The content of `run.json`."""

    algorithm: str
    configs: list[dict[str, Any]]
    options: Options
    spec: Spec
    scaler: Scaler
    data: TrainingData
    held_out: list[Any]  # ids of the held-out episodes
    machine: dict[str, Any]
    # sketches of the training and the held-out episodes; absent in old runs
    sketches: dict[str, Any] = field(default_factory=dict)
    file: Path | None = field(default=None, compare=False)  # that it was read from

    @classmethod
    def of(
        cls,
        algorithms: Sequence[Any],
        options: Options,
        log: Log | Interactions,
        spec: Spec,
        scaler: Scaler,
        held_out: list[Any],
        sketches: dict[str, Any],
        refit_of: RefitOf | None = None,
    ) -> Record:
        """Create the record of a run that learns from a log."""
        data = TrainingData(
            fingerprint=log.fingerprint(),
            origin=None if log.origin is None else dict(log.origin),
            steps=log.steps,
            episodes=len(log.episodes),
            refit_of=refit_of,
        )
        configs = [to_config(algorithm) for algorithm in algorithms]
        name, machine = algorithm_name(algorithms[0]), this_machine()
        return cls(name, configs, options, spec, scaler, data, held_out, machine, sketches)

    @classmethod
    def online(cls, algorithms: Sequence[Any], options: Options, spec: Spec, data: TrainingData) -> Record:
        """Create the record of a run that learns in an environment."""
        configs = [to_config(algorithm) for algorithm in algorithms]
        name = algorithm_name(algorithms[0])
        return cls(name, configs, options, spec, Scaler(), data, [], this_machine())

    @property
    def environment(self) -> str | None:
        """The name of the run's environment, or None if it learns from a log."""
        return self.data.environment

    @property
    def is_finetuned(self) -> bool:
        """Whether the run learned from a log and continues in an environment."""
        return self.data.finetuned

    @property
    def refit_note(self) -> str | None:
        """What a user of a refit must know, or None for another run."""
        source = self.data.refit_of
        if source is None:
            return None
        about = f"a refit: it learnt from the whole log with the settings of {source.run or 'a run in memory'}"
        if isinstance(self.spec.action, Catalogue):
            return f"{about}; no held-out events are left to measure its lists. fix: measure them on newer events"
        found = "nobody had judged that policy" if source.verdict is None else f'of that policy: "{source.verdict}"'
        return (
            f"{about}; {found}. No verdict is on the refit itself. fix: judge it on newer data (tidelog judge --data)"
        )

    @property
    def acting(self) -> Acting | None:
        """The way of acting that a refit takes over; None for another run."""
        return None if self.data.refit_of is None else self.data.refit_of.acting

    @property
    def beginning(self) -> str | None:
        """A sentence about the distillation from the start policy, or None without one."""
        start = self.data.start
        if start is None:
            return None
        return (
            f"distilled from the {start.algorithm} start policy: mean divergence {max(start.divergence):.3g} "
            f"nats after {start.updates:,} updates on {start.decisions:,} of its decisions"
        )

    def text(self) -> bytes:
        """The content of `run.json`."""
        content = RunFile(
            schema=SCHEMA,
            algorithm=self.algorithm,
            configs=self.configs,
            options=self.options,
            spec=self.spec.to_json(),
            scaler=self.scaler.to_json(),
            data=self.data,
            held_out_episodes=self.held_out,
            machine=self.machine,
            sketches=self.sketches,
        )
        try:
            body = msgspec.json.decode(msgspec.json.encode(content, enc_hook=_plain))
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{printable(error.object)} has bytes that are no UTF-8: expected a name that the run's record can "
                "hold. fix: rename the file"
            ) from None
        return json.dumps({**body, "sha256": digest(body)}, indent=1, allow_nan=False).encode()

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read the record of a run folder; CheckpointError if it is missing or cannot be read."""
        path = folder / FILE
        if not path.exists():
            copy = replaced_copy(folder)
            fix = (
                "pass the folder of a run" if copy is None else f"rename {copy}, which was being replaced, to {folder}"
            )
            raise CheckpointError(f"{folder} is no run folder: it has no {FILE}. fix: {fix}")
        check_own(folder)
        try:
            body = parse_saved(read_regular(path))
            if not isinstance(body, dict):
                raise ValueError("expected an object")
            if body.get("schema") != SCHEMA:
                raise CheckpointError(
                    f"{path} has schema {body.get('schema')!r}, expected {SCHEMA}. fix: read it with the version of "
                    "tidelog that wrote it"
                )
            if body.pop("sha256", None) != digest(body):
                raise CheckpointError(f"{path} was changed after it was written: its checksum differs. fix: restore it")
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}. fix: restore the file") from error
        file = typed(body, RunFile, str(path))
        unknown = {name for name, value in body["options"].items() if value} - {one.name for one in fields(Options)}
        if unknown:
            raise CheckpointError(
                f"{path} has the option {', '.join(sorted(unknown))}, which this tidelog does not have. fix: read "
                "it with the version that wrote it"
            )
        try:
            spec, scaler = Spec.from_json(file.spec), Scaler.from_json(file.scaler)
        except TidelogError as error:
            raise CheckpointError(f"{path} cannot be read: {error}. fix: restore the file") from error
        return cls(
            file.algorithm,
            file.configs,
            file.options,
            spec,
            scaler,
            file.data,
            file.held_out_episodes,
            file.machine,
            file.sketches,
            path,
        )

    def algorithms(self, given: Any = None) -> list[Any]:
        """Return the algorithms of the run; `given` replaces them if the run has custom parts."""
        if given is not None:
            return list(given) if isinstance(given, Sequence) else [given]
        cls = algorithm_class(self.algorithm)
        try:
            return [from_config(cls, config) for config in self.configs]
        except ConfigError as error:
            if self.file is None or "fix: " in str(error):
                raise
            raise CheckpointError(f"{self.file}, configs: {error}. fix: restore the file") from error

    @property
    def has_rewards(self) -> bool:
        """Whether the run's log has rewards, as far as the record says."""
        return not self.sketches or any(sketch["rewards"] for sketch in self.sketches.values())

    def origin(self, *, best: bool = False, **facts: Any) -> dict[str, Any]:
        """Return the origin of a policy of this run: the data that judging needs, and facts about the policy.

        `chosen_by` is the held-out metric that selected the policy, as the best one or by patience; `best_report`
        marks the policy of the best report, which need not be the last one.
        """
        metric = (self.options.best or "").removeprefix("max:").removeprefix("min:")
        chosen = metric.startswith("held_out/") and (best or self.options.patience is not None)
        again = {} if self.refit_note is None else {"refit": self.refit_note}
        return {
            **facts,
            "data": self.data.fingerprint,
            "chosen_by": metric if chosen else None,
            "best_report": best,
            "held_out_share": self.options.held_out,
            **self.sketches,
            **again,
        }

    def judge_command(self, folder: Path) -> str:
        """Return the command that judges the run's policies: all members at once, in all ways of acting."""
        members = len(self.configs) * len(self.options.seeds)
        flags = [" --all-members"] if members > 1 and self.options.best is None else []
        flags += [] if self.held_out else [" --data OTHER_LOG"]
        return f"tidelog judge {shlex.quote(str(folder))}{''.join(flags)}"

    def resume_command(self, folder: Path) -> str:
        """Return the command that continues the run; it names environments of the user's own modules again."""
        own = [f" --env {shlex.quote(name)}" for name in self.environments() if module_of(name) is not None]
        return f"tidelog resume {shlex.quote(str(folder))}{''.join(own)}"

    def environments(self) -> list[str]:
        """Return the names of all environments that the run makes: for its decisions and for its evaluations."""
        named = [self.data.environment] if self.data.environment is not None and self.data.named else []
        evaluated = [name.removeprefix(SAMPLED) for name in self.options.evaluate]
        return list(dict.fromkeys([*named, *evaluated]))

    def check_imported(self, folder: Path, names: Sequence[str] | None = None) -> None:
        """Raise ConfigError where the module of an environment (default: of any) is not imported yet."""
        check_imported(self.environments() if names is None else names, self.resume_command(folder))

    def differences(self) -> list[str]:
        """Return the differences of this machine; with any of them a resumed run may not be bit-equal."""
        return [
            f"{k}: {self.machine[k]} then, {v} now"
            for k, v in this_machine().items()
            if k in self.machine and self.machine[k] != v
        ]


def resume_command(folder: Path) -> str:
    """Return the command that continues the run of a folder, whose record may be damaged."""
    try:
        return Record.read(folder).resume_command(folder)
    except TidelogError:
        return f"tidelog resume {shlex.quote(str(folder))}"


def check_free(out: str | Path | None, overwrite: bool = False) -> None:
    """Raise ConfigError if the path of a run's folder is a file, or a folder that is not empty.

    With `overwrite` the folder may hold a run, unless a process trains it (CheckpointError).
    """
    if out is None:
        return
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, expected a folder; nothing was written. fix: choose another folder")
    is_run = (folder / FILE).exists()
    if overwrite and is_run:
        check_unlocked(folder)
    elif folder.exists() and not all(map(is_temporary, folder.iterdir())):
        again = f", continue the run with `{resume_command(folder)}` or tl.resume({str(folder)!r}), or read it with "
        again += f"tl.load({str(folder)!r}), or replace it with overwrite=True (--overwrite)"
        what, other = ("a run", again) if is_run else ("no run", "")
        raise ConfigError(
            f"{folder} exists and is not empty ({what}); nothing was written. fix: choose another folder{other}"
        )


def new_folder(out: str | Path | None, record: Record, overwrite: bool = False) -> Path | None:
    """Create the run folder with its record, or return None; ConfigError if the folder is not empty.

    With `overwrite` the folder of another run is replaced in one step.
    """
    if out is None:
        return None
    check_free(out, overwrite)
    folder = Path(out)
    if (folder / FILE).exists():
        write_folder(folder, {FILE: record.text()}, lambda _: {}, ConfigError)
    else:
        write_file(folder / FILE, record.text(), ConfigError, parents=True)
    return folder


def this_machine() -> dict[str, Any]:
    """Return versions, processor, device and thread count; the last bits depend on all of them."""
    return {
        **_versions(),
        "python": platform.python_version(),
        "processor": processor(),
        "device": f"{jax.default_backend()} ({jax.devices()[0].device_kind})",
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def _plain(value: Any) -> Any:
    """Return a NumPy number as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} has no JSON form")


@cache
def _versions() -> Mapping[str, str]:
    return {name: metadata.version(name) for name in PACKAGES}
