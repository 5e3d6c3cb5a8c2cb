"""Values and occupancy ratios as jobs: what is to be fitted is in a folder, and each result is a file in it.

FOLDER/files.json                  what is to be fitted; written before a job begins
FOLDER/log-NAME.tidelog            the judged log
FOLDER/given-NAME.safetensors      folds, propensities, and the states of a table
FOLDER/target-NAME.safetensors     what a policy, or a clone of the logger, does
FOLDER/fitted-NAME.safetensors     values and ratios at the rows of a fold
FOLDER/fitted-NAME.json            the error of a model, in place of these
FOLDER/jobs/0003.txt               what a process printed
FOLDER/files.lock                  locked while a verdict is made here

A name is the checksum of the content, and that of a result is the checksum of all that it depends on. So a result that
is there belongs to exactly this question, and is used again. Tables are fitted without JAX.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from tidelog.data.io.readers import open_log
from tidelog.data.log import Log
from tidelog.data.states import States
from tidelog.disk import delete, write_file, write_json
from tidelog.errors import CheckpointError, ConfigError, DivergenceError, TidelogError
from tidelog.folders import digest
from tidelog.input_files import read_regular
from tidelog.ope.evidence.episodes import centred_rewards
from tidelog.ope.evidence.evidence import Floats, Target
from tidelog.ope.models import tabular
from tidelog.ope.models.tabular import Values
from tidelog.schema import Count, Share, decode_file
from tidelog.sweeps.engines import FILES
from tidelog.threads import one_thread

Arrays = dict[str, NDArray[Any]]
AGAIN = "delete the folder, and judge again"


class FoldFit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The models of a policy for one fold."""

    fold: Count
    targets: list[str]  # files, of the policy and its clones, then of those with values alone
    ratios: list[bool]  # whether occupancy ratios of a target are fitted too


class FitPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `files.json`."""

    log: str
    given: str
    model: Literal["tabular", "neural"]
    discount: Share
    seed: int
    versions: dict[str, str]  # and the kind of processor, on which the last bits depend too
    fits: list[FoldFit]

    @classmethod
    def read(cls, folder: Path) -> FitPlan:
        """Read the plan of a folder; ConfigError if it has none."""
        return decode_file(folder / FILES, cls, ConfigError, "choose another folder for the jobs")

    def write(self, folder: Path) -> None:
        """Write the plan, and forget the errors of earlier calls."""
        write_json(folder / FILES, msgspec.to_builtins(self), ConfigError)
        for number in range(len(self.fits)):
            delete(self.error(folder, number))

    def result(self, folder: Path, number: int) -> Path:
        """The file of a result."""
        names = ("log", "given", "model", "discount", "seed", "versions")
        body = {name: getattr(self, name) for name in names} | msgspec.to_builtins(self.fits[number])
        return folder / f"fitted-{digest(body)[:32]}.safetensors"

    def error(self, folder: Path, number: int) -> Path:
        """The file of an error, in place of a result."""
        return self.result(folder, number).with_suffix(".json")

    def left(self, folder: Path, numbers: Sequence[int]) -> list[int]:
        """Those of some fits that have neither a result nor an error."""
        return [one for one in numbers
                if not self.result(folder, one).exists() and not self.error(folder, one).exists()]  # fmt: skip


class FoldError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a model could not be fitted."""

    diverged: bool
    message: str


class Fitted(NamedTuple):
    """Values of each target, and ratios of those that have some, at the rows of a fold."""

    values: list[Values]
    ratios: list[Floats | None]


def write_arrays(folder: Path, kind: str, arrays: Mapping[str, NDArray[Any] | None]) -> str:
    """Write arrays as a file that is named by their content, unless it is there; return its name."""
    known = {name: np.ascontiguousarray(array) for name, array in sorted(arrays.items()) if array is not None}
    content = hashlib.sha256()
    for name, array in known.items():
        content.update(f"{name} {array.dtype.str} {array.shape}".encode())
        content.update(array.view(np.uint8).data)
    file = folder / f"{kind}-{content.hexdigest()[:32]}.safetensors"
    if not file.exists():
        write_file(file, partial(save_file, known), ConfigError)
    return file.name


def write_log(folder: Path, log: Log) -> str:
    """Save a log under a name from its content, unless it is there; return its name."""
    path = folder / f"log-{log.fingerprint()[:32]}.tidelog"
    if not path.exists():
        log.save(path)
    return path.name


def read_fitted(plan: FitPlan, folder: Path, number: int) -> Fitted:
    """Read a result; DivergenceError or ConfigError for the error of its model, CheckpointError for another file."""
    path = plan.error(folder, number)
    if path.exists():
        error = decode_file(path, FoldError, CheckpointError, AGAIN)
        raise DivergenceError(error.message) if error.diverged else ConfigError(error.message)
    path, fit = plan.result(folder, number), plan.fits[number]
    arrays = _read(path)
    try:
        values = [
            Values(arrays[f"{place}.logged"], arrays[f"{place}.target"], arrays.get(f"{place}.all_actions"))
            for place in range(len(fit.targets))
        ]
        return Fitted(values, [arrays[f"{place}.ratios"] if one else None for place, one in enumerate(fit.ratios)])
    except KeyError as error:
        raise CheckpointError(f"{path} has no array {error}. fix: {AGAIN}") from error


@one_thread("blas")  # as in the process that judges
def work_on(folder: Path, numbers: list[int]) -> None:
    """Fit those of some models that are left, one after another."""
    plan = FitPlan.read(folder)
    log = open_log(folder / plan.log, memory_map=True)
    given = _read(folder / plan.given)
    for number in plan.left(folder, numbers):
        try:
            targets = [_target(folder / one) for one in plan.fits[number].targets]
            fitted = fit_fold(plan, log, given, plan.fits[number], targets)
        except TidelogError as error:
            content = FoldError(isinstance(error, DivergenceError), str(error))
            write_json(plan.error(folder, number), msgspec.to_builtins(content), ConfigError)
            continue
        arrays: Arrays = {}
        for place, (values, ratios) in enumerate(zip(fitted.values, fitted.ratios, strict=True)):
            found = {**values._asdict(), "ratios": ratios}
            arrays |= {f"{place}.{name}": np.ascontiguousarray(one) for name, one in found.items() if one is not None}
        write_file(plan.result(folder, number), partial(save_file, arrays), ConfigError)


def fit_fold(plan: FitPlan, log: Log, given: Arrays, fit: FoldFit, targets: list[Target]) -> Fitted:
    """Fit the models of a fold in this process."""
    folds, behaviour, fold, discount = given["folds"], given["behaviour"], fit.fold, plan.discount
    centred, _ = centred_rewards(log, discount)
    if plan.model == "tabular":
        states = States(given["states"], int(given["size"][0]))
        values = [tabular.fold_values(centred, states, folds, fold, one, discount) for one in targets]
        ratios = [
            tabular.fold_ratios(log, states, folds, fold, one, behaviour, discount) if wanted else None
            for one, wanted in zip(targets, fit.ratios, strict=True)
        ]
        return Fitted(values, ratios)
    from tidelog.ope.models import function_approximation as networks
    from tidelog.training.engine.cache import use_cache

    use_cache()
    values = networks.fold_values(centred, folds, fold, targets, discount, plan.seed)
    ratios = [
        networks.fold_ratios(log, folds, fold, one, behaviour, discount, plan.seed) if wanted else None
        for one, wanted in zip(targets, fit.ratios, strict=True)
    ]
    return Fitted(values, ratios)


def _target(path: Path) -> Target:
    arrays = _read(path)
    return Target(arrays["logged"], arrays.get("probabilities"), arrays.get("actions"))


def _read(path: Path) -> Arrays:
    try:
        return dict(load(read_regular(path)))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. fix: {AGAIN}") from error
