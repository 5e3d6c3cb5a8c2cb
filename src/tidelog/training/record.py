"""The files of a run: `run.json` (settings, data, machine), checkpoints, and who may write there.

`learn.py:load_run` reads them and goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import msgspec
import numpy as np

from tidelog import _files
from tidelog._files import (
    MANIFEST,
    Kind,
    check_own,
    checksum,
    digest,
    is_temporary,
    open_own,
    parse_saved,
    read_regular,
    replaced_copy,
    write_file,
    write_folder,
)
from tidelog._machine import processor_flags, this_machine
from tidelog._text import printable
from tidelog.algorithms.hyperparameters import from_config, to_config
from tidelog.algorithms.names import algorithm_class, algorithm_name
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler
from tidelog.envs.registry import check_imported, make, module_of
from tidelog.errors import CheckpointError, ConfigError, TidelogError
from tidelog.networks import native
from tidelog.policies.policy import Named, Policy, array_file, fill, fingerprint, named_arrays, read_arrays
from tidelog.policies.rollout import MappedPolicy, rollout
from tidelog.policies.statistics import iqm
from tidelog.recommend.interactions import Interactions
from tidelog.runtime.way_of_acting import Acting
from tidelog.schema import Count, decode, decode_file, renamed, typed
from tidelog.training.loop import LearnerState, Position
from tidelog.training.metrics import SelectionMemory
from tidelog.training.options import Options
from tidelog.types import Catalogue, Spec

# Evaluation during training: episodes in environments, and the user's own functions of the policy.

SAMPLED = "sampled:"  # prefix of an environment's name: sample the actions from the policy


def check_environments(policy: Policy, episodes: Mapping[str, int]) -> None:
    """Raise ConfigError or SpecError if an environment is unknown or does not fit the policy."""
    for name in episodes:
        environment = make(name.removeprefix(SAMPLED), 1)
        try:
            MappedPolicy(policy, environment.spec, environment.name)
        finally:
            environment.close()


def evaluated(episodes: Mapping[str, int], own: Mapping[str, Any]) -> list[str]:
    """Return the names of the metrics that `evaluate` returns."""
    return [metric for name in episodes for metric in (f"play/{name}", f"play/{name}/iqm")] + list(own)


def evaluate(
    policy: Policy, episodes: Mapping[str, int], own: Mapping[str, Callable[[Policy], float]]
) -> dict[str, float]:
    """Return `{"play/<environment>": mean return, "play/<environment>/iqm": ..., "<own>": ...}`.

    Actions are deterministic, or sampled from the policy if the name starts with `sampled:`.
    """
    metrics: dict[str, float] = {}
    for name, count in episodes.items():
        way = policy.with_acting("sample" if name.startswith(SAMPLED) else "mode")  # whatever a verdict declared
        returns = rollout(way, name.removeprefix(SAMPLED), count, seed=0)
        metrics[f"play/{name}"] = float(returns.mean())
        metrics[f"play/{name}/iqm"] = iqm(returns)
    return metrics | {name: _number(name, function(policy)) for name, function in own.items()}


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"evaluate['{name}'] returned {value!r}", "a number", "return a float") from None


BFLOAT16 = ("avx512_bf16", "amx_bf16")  # flags of processors with products of bfloat16


def products_note(precision: str) -> str | None:
    """Return a note if training with products of this precision may be no faster here; else None."""
    if precision != "bfloat16" or jax.default_backend() != "cpu" or any(flag in processor_flags() for flag in BFLOAT16):
        return None
    return (
        "matmul_precision = bfloat16, but no flag of this processor says that it multiplies bfloat16 "
        f"({', '.join(BFLOAT16)}): training may be slower than with float32. fix: compare both, or drop "
        "matmul_precision (--matmul-precision)"
    )


# Each checkpoint is complete or absent, old ones are deleted, corrupt ones are refused.

CHECKPOINT = Kind("checkpoint", 3)
TALLIES = ".tallies"  # begins the names of sums of metrics in a learner's file


class CheckpointFields(msgspec.Struct):
    """The fields of a checkpoint's manifest, besides those of every folder."""

    position: Position
    memory: SelectionMemory
    metrics: dict[str, Count]


class Checkpoint(NamedTuple):
    """The content of a checkpoint."""

    learners: list[LearnerState]
    position: Position
    memory: SelectionMemory  # the state of the selection: best values so far
    environments: Sequence[Named] = ()  # states of the host environments; {} for one that cannot be saved
    metrics: Mapping[str, int] = {}  # bytes of the files of metrics, by name


class Checkpoints:
    """The folder `checkpoints` of a run."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep

    def updates(self) -> list[int]:
        """Return the updates of all complete checkpoints, oldest first; incomplete ones are named in a warning."""
        if not self._folder.is_dir():
            return []
        folders = sorted(path for path in self._folder.iterdir() if path.name.isdigit())
        complete = [path for path in folders if (path / MANIFEST).is_file()]
        if len(complete) < len(folders):
            without = ", ".join(path.name for path in folders if path not in complete)
            warnings.warn(f"{self._folder}: {without} has no {MANIFEST} and is passed over", stacklevel=2)
        return [int(path.name) for path in complete]

    def save(self, update: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then delete all but the last `keep`."""
        files: dict[str, Any] = {
            f"member-{i}.safetensors": array_file(learner) for i, learner in enumerate(checkpoint.learners)
        }
        for i, arrays in enumerate(checkpoint.environments):
            files |= {f"environment-{i}.safetensors": array_file(arrays)} if arrays else {}
        manifest = {
            "position": list(checkpoint.position),
            "memory": msgspec.to_builtins(checkpoint.memory, str_keys=True),
            "metrics": dict(checkpoint.metrics),
        }
        CHECKPOINT.write(self._folder / f"{update:010d}", files, manifest)
        self.forget(self.updates()[: -self._keep])

    def forget(self, updates: Sequence[int]) -> None:
        """Delete checkpoints in this order, each completely; CheckpointError if the disk refuses."""
        for update in updates:
            folder = self._folder / f"{update:010d}"
            try:
                _files.delete(folder)
            except OSError as problem:
                raise _files.not_written(folder, problem, CheckpointError) from problem

    def load(self, templates: list[LearnerState], update: int | None = None) -> Checkpoint:
        """Read the last checkpoint, or the one at `update`; if it is corrupt, the error names the one before it."""
        last, updates = self._last(), self.updates()
        selected = last if update is None else update
        if selected not in updates:
            raise CheckpointError(
                f"checkpoint = {selected}: there is no checkpoint at this update",
                fix=f"use one of {', '.join(map(str, updates))}",
            )
        try:
            return self._read(self._folder / f"{selected:010d}", templates)
        except CheckpointError as error:
            before = [u for u in updates if u < selected]
            if not before:
                raise
            fix = f"{error.fix}, or use the one before it, with checkpoint={before[-1]}"
            raise CheckpointError(error.found, error.expected, fix) from error

    def metrics(self) -> dict[str, int]:
        """Return the bytes of the files of metrics at the last checkpoint, by name; {} without a checkpoint."""
        updates = self.updates()
        return self._fields(updates[-1]).metrics if updates else {}

    def memory(self) -> SelectionMemory:
        """Return the state of the selection at the last checkpoint."""
        return self._fields(self._last()).memory

    def _fields(self, update: int) -> CheckpointFields:
        folder = self._folder / f"{update:010d}"
        return typed(CHECKPOINT.manifest(folder), CheckpointFields, str(folder / MANIFEST))

    def _last(self) -> int:
        updates = self.updates()
        if not updates:
            raise CheckpointError(f"{self._folder} has no complete checkpoint", fix="start the run again")
        return updates[-1]

    def _read(self, folder: Path, templates: list[LearnerState]) -> Checkpoint:
        manifest = CHECKPOINT.manifest(folder)
        fields = typed(manifest, CheckpointFields, str(folder / MANIFEST))
        if sum(name.startswith("member-") for name in manifest["files"]) != len(templates):
            raise CheckpointError(
                f"{folder} has the members of another run", f"{len(templates)}", "use a checkpoint of this run"
            )

        def fill_from(name: str, template: Any) -> Any:
            file = CHECKPOINT.file(folder, name, manifest)
            arrays, fresh = read_arrays(file), named_arrays(template.tallies)
            kept = {path.removeprefix(TALLIES): array for path, array in arrays.items() if path.startswith(TALLIES)}
            if set(kept) == set(fresh):
                return fill(template, arrays, str(file))
            # sums since the last report are no state: nothing that is learnt reads them
            arrays = {path: array for path, array in arrays.items() if not path.startswith(TALLIES)}
            filled = fill(template, arrays | {f"{TALLIES}{path}": array for path, array in fresh.items()}, str(file))
            warnings.warn(
                "the algorithm has other metrics than when the checkpoint was saved: the next report is of the updates "
                "from here on",
                stacklevel=2,
            )
            return filled

        learners = [fill_from(f"member-{i}.safetensors", template) for i, template in enumerate(templates)]
        environments = [_environment(folder, i, manifest) for i in range(len(templates))]
        return Checkpoint(learners, fields.position, fields.memory, environments, fields.metrics)


def _environment(folder: Path, member: int, manifest: dict[str, Any]) -> Named:
    name = f"environment-{member}.safetensors"
    if name not in manifest["files"]:
        return {}
    arrays = read_arrays(CHECKPOINT.file(folder, name, manifest))
    return {path[2:-2]: array for path, array in arrays.items()}  # the names before they became pytree paths


def read_member(run: Path, member: int) -> tuple[int, Path, Named]:
    """Return the update of a run's last checkpoint, the file of one member, and the arrays of its state by path."""
    updates = Checkpoints(run / "checkpoints", 1).updates()
    if not updates:
        raise CheckpointError(f"{run / 'checkpoints'} has no complete checkpoint", fix="start the run again")
    last = run / "checkpoints" / f"{updates[-1]:010d}"
    file = CHECKPOINT.file(last, f"member-{member}.safetensors", CHECKPOINT.manifest(last))
    prefix = ".state"
    arrays = read_arrays(file).items()
    return updates[-1], file, {path[len(prefix) :]: array for path, array in arrays if path.startswith(prefix)}


def read_part(run: str | Path, part: str) -> Named:
    """Return one part (such as `critic`) of the first member's state in a run's last checkpoint, by path within it.

    Raises CheckpointError if there is no such part.
    """
    _, file, arrays = read_member(Path(run), 0)
    prefix = f".{part}"
    selected = {path[len(prefix) :]: a for path, a in arrays.items() if path.startswith((prefix + ".", prefix + "["))}
    if not selected:
        parts = sorted({path.split(".")[1].split("[")[0] for path in arrays})
        raise CheckpointError(f"{file} has no part '{part}'", fix=f"use one of {', '.join(parts)}")
    return selected


# The lock on a file in the folder of a run or a sweep, which ends with its process.

LOCK = "training.lock"


class Owner(msgspec.Struct):
    """The process that holds a lock."""

    process: int
    host: str
    since: str


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's or a sweep's folder; CheckpointError names the process that holds it already.

    A file system without locks gives a warning. CheckpointError if the folder cannot be written.
    """
    path = folder / LOCK
    try:
        handle = open_own(path, os.O_RDWR | os.O_CREAT)
    except OSError as problem:
        why = problem.strerror or problem
        raise CheckpointError(
            f"{path} cannot be written: {why}",
            fix="correct the permissions of the folder, or continue with a copy of it",
        ) from problem
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(folder, _owner(handle)) from None
        except OSError as problem:
            warnings.warn(
                f"{path} cannot be locked ({problem.strerror}): make sure that no other process works in this folder",
                stacklevel=3,
            )
        owner = Owner(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))
        os.ftruncate(handle, 0)
        os.pwrite(handle, msgspec.json.encode(owner), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def check_unlocked(folder: Path) -> None:
    """Raise CheckpointError if another process trains the run of this folder."""
    path = folder / LOCK
    if path.is_file() and os.access(path, os.R_OK):
        handle = open_own(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(folder, _owner(handle)) from None
        except OSError:  # no locks here: `locked` warns
            return
        finally:
            os.close(handle)


def _held(folder: Path, owner: str) -> CheckpointError:
    wait = "wait for it, or stop it (Ctrl-C or `kill` saves a checkpoint); the lock ends with the process"
    return CheckpointError(f"{folder} is being trained by {owner}", fix=wait)


def _owner(handle: int) -> str:
    try:
        owner = decode(os.pread(handle, 1_000, 0), Owner, LOCK)
    except CheckpointError:  # the owner has not written its name yet
        return "another process"
    return f"process {owner.process} on {owner.host} since {owner.since}"


SCHEMA, FILE = 4, "run.json"


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
    named: bool = False  # whether the environment has a registered name
    finetuned: bool = False
    finetuned_from: str | None = None  # the folder of the run over the log, if it had one
    refit_of: RefitOf | None = None
    discount_unit: str | None = None  # what discounts are per, if not per step (`LogColumns.discount_unit`)

    @classmethod
    def of(cls, log: Log | Interactions, refit_of: RefitOf | None = None) -> TrainingData:
        """Return the description of a log."""
        origin = None if log.origin is None else dict(log.origin)
        return cls(
            fingerprint=log.fingerprint(),
            origin=origin,
            steps=log.steps,
            episodes=len(log.episodes),
            refit_of=refit_of,
            discount_unit=log.discount_unit if isinstance(log, Log) else None,
        )


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
        spec: Spec,
        data: TrainingData,
        scaler: Scaler,
        held_out: Sequence[Any] = (),
        sketches: Mapping[str, Any] | None = None,
        products: str = "XLA",
    ) -> Record:
        """Create the record of a run of these algorithms, on this machine; `products` computes their dense layers."""
        configs = [to_config(algorithm) for algorithm in algorithms]
        name, machine = algorithm_name(algorithms[0]), {**this_machine(), "products": products}
        return cls(name, configs, options, spec, scaler, data, list(held_out), machine, dict(sketches or {}))

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
                f"{printable(error.object)} has bytes that are no UTF-8",
                "a name that the run's record can hold",
                "rename the file",
            ) from None
        return sealed(body)

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read the record of a run folder; CheckpointError if it is missing or cannot be read."""
        path = folder / FILE
        if not path.exists():
            copy = replaced_copy(folder)
            fix = (
                "pass the folder of a run" if copy is None else f"rename {copy}, which was being replaced, to {folder}"
            )
            raise CheckpointError(f"{folder} is no run folder: it has no {FILE}", fix=fix)
        body = read_sealed(path, SCHEMA)
        known = {one.name for one in fields(Options)}
        if isinstance(body.get("options"), dict):
            body["options"] = renamed(body["options"], known)
        file = typed(body, RunFile, str(path))
        unknown = {name for name, value in body["options"].items() if value} - known
        if unknown:
            raise CheckpointError(
                f"{path} has the option {', '.join(sorted(unknown))}, which this tidelog does not have",
                fix="read it with the version that wrote it",
            )
        try:
            spec, scaler = Spec.from_json(file.spec), Scaler.from_json(file.scaler)
        except TidelogError as error:
            raise CheckpointError(f"{path} cannot be read: {error.problem}", fix="restore the file") from error
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
            if self.file is None or error.fix:
                raise
            raise CheckpointError(f"{self.file}, configs: {error.problem}", fix="restore the file") from error

    @property
    def has_rewards(self) -> bool:
        """Whether the run's log has rewards, as far as the record says."""
        return not self.sketches or any(sketch["rewards"] for sketch in self.sketches.values())

    def origin(self, *, best: bool = False, **facts: Any) -> dict[str, Any]:
        """Return the origin of a policy of this run: the data that judging needs, and facts about the policy.

        `chosen_by` is the held-out metric that selected the policy, as the best one or by patience; `best_report`
        marks the policy of the best report, which need not be the last one.
        """
        metric = (self.options.best_metric or "").removeprefix("max:").removeprefix("min:")
        chosen = metric.startswith("held_out/") and (best or self.options.patience is not None)
        again = {} if self.refit_note is None else {"refit": self.refit_note}
        again |= {} if self.data.discount_unit is None else {"discount_unit": self.data.discount_unit}
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
        flags = [" --all-members"] if members > 1 and self.options.best_metric is None else []
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

    @property
    def products(self) -> str:
        """What computes the dense layers of the run's training: "native" or "XLA"."""
        return str(self.machine.get("products", "XLA"))

    def differences(self) -> list[str]:
        """Return the differences of this machine; with any of them a resumed run may not be bit-equal."""
        now = {**this_machine(), "products": "native" if native.resumes(self.products) else "XLA"}
        return [
            f"{k}: {self.machine[k]} then, {v} now"
            for k, v in now.items()
            if k in self.machine and self.machine[k] != v
        ]


def sealed(body: Mapping[str, Any]) -> bytes:
    """Return the JSON text of a file that holds its own checksum."""
    return json.dumps({**body, "sha256": digest(body)}, indent=1, allow_nan=False).encode()


def read_sealed(path: Path, schema: int) -> dict[str, Any]:
    """Return the content of such a file; CheckpointError where it is damaged, changed, or of another schema."""
    check_own(path.parent)
    try:
        body = parse_saved(read_regular(path))
        if not isinstance(body, dict):
            raise ValueError("expected an object")
        if body.get("schema") != schema:
            raise CheckpointError(
                f"{path} has schema {body.get('schema')!r}",
                f"{schema}",
                "read it with the version of tidelog that wrote it",
            )
        if body.pop("sha256", None) != digest(body):
            raise CheckpointError(f"{path} was changed after it was written: its checksum differs", fix="restore it")
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", fix="restore the file") from error
    return body


def resume_command(folder: Path) -> str:
    """Return the command that continues the run of a folder, whose record may be damaged."""
    try:
        return Record.read(folder).resume_command(folder)
    except TidelogError:
        return f"tidelog resume {shlex.quote(str(folder))}"


def check_free(out: str | Path | None, overwrite: bool = False, file: str = FILE) -> None:
    """Raise ConfigError if the path of a run's folder is a file, or a folder that is not empty.

    With `overwrite` the folder may hold a run, unless a process trains it (CheckpointError). A sweep's folder has
    another `file`.
    """
    if out is None:
        return
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file", "a folder; nothing was written", "choose another folder")
    exists, kind, name = (folder / file).exists(), "run" if file == FILE else "sweep", repr(str(folder))
    if overwrite and exists:
        check_unlocked(folder)
    elif folder.exists() and not all(map(is_temporary, folder.iterdir())):
        again = f", continue the {kind} with `{resume_command(folder)}` or tl.resume({name})"
        if file == FILE:
            again += f", or read it with tl.load_run({name}), or replace it with overwrite=True (--overwrite)"
        raise ConfigError(
            f"{folder} exists and is not empty ({'a' if exists else 'no'} {kind}); nothing was written",
            fix=f"choose another folder{again if exists else ''}",
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


def _plain(value: Any) -> Any:
    """Return a NumPy number as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} has no JSON form")


# The provenance of an exported policy: log, run, checkpoint, verdict and weights, each with its fingerprint.

VERDICTS = "verdicts"


class VerdictFile(msgspec.Struct):
    """The file of a verdict, as far as the provenance reads it."""

    decision: str
    difference: dict[str, float | None]


def provenance_of(folder: Path, record: Record, policy: Policy) -> dict[str, Any]:
    """Return the provenance of a policy of a run: plain values, with the run's folder as it is named now."""
    update = policy.origin.get("update")
    checkpoint = folder / "checkpoints" / f"{update:010d}" / MANIFEST if isinstance(update, int) else None
    verdict = _verdict_file(folder, policy)
    return {
        "log": {"fingerprint": record.data.fingerprint, "environment": record.environment},
        "run": {"folder": str(folder.absolute()), "sha256": checksum(folder / FILE)},
        "checkpoint": _file(folder, checkpoint),
        "verdict": _file(folder, verdict),
        "weights": fingerprint(policy.params),
    }


def _file(folder: Path, path: Path | None) -> dict[str, str] | None:
    if path is None or not path.is_file():
        return None
    return {"file": path.relative_to(folder).as_posix(), "sha256": checksum(path)}


def _verdict_file(folder: Path, policy: Policy) -> Path | None:
    """The newest file of the verdict that the policy carries."""
    if policy.verdict is None:
        return None
    numbers = [policy.verdict[name] for name in ("difference", "low", "high")]
    files = sorted((folder / VERDICTS).glob("*.json"), key=lambda path: path.stat().st_mtime)
    for path in reversed(files):
        content = decode_file(path, VerdictFile, fix="remove it and judge the run again")
        if content.decision == policy.verdict["decision"] and numbers == [*content.difference.values()]:
            return path
    return None
