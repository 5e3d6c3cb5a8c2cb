"""Declare how the decisions of a log were drawn, and test a log against its propensities.

Letters: `N` rows, `A` actions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.balance import Balance, Observed, as_number, balance_of, fit_of
from tidelog.data.columns import frozen
from tidelog.data.declared import (
    DeclarationError,
    DeclaredPropensities,
    check_strata,
    declaration_of,
    labels_of,
    probabilities_of,
    propensity_column,
    strata_of,
)
from tidelog.data.log import Log
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.types import Codes, Discrete, Image

TIME = "the time of the row"


def is_declaration(value: Any) -> bool:
    """Whether a value declares propensities, and is no array or name."""
    return isinstance(value, str | int | float | dict) and declaration_of(frozen(value)) is not None


def with_declaration(log: Log, propensities: Any) -> tuple[Log, Any]:
    """The log with the propensities that a call declares, and None in their place; else both unchanged."""
    return (declare(log, propensities), None) if is_declaration(propensities) else (log, propensities)


def declare(log: Log, value: Any) -> Log:
    """The log with declared propensities, as `propensity` of `Columns` declares them, in place of its own.

    Columns of strata are those of the observation and the extra columns. ConfigError if the declaration does not fit
    the actions, SpecError for actions that have no declared propensities.
    """
    declaration, space = declaration_of(frozen(value)), log.spec.action
    if declaration is None:
        raise ConfigError(f"propensities = {value!r}", "a declaration", "write 'shares', or probabilities")
    if not isinstance(space, Discrete) or log.action_mask is not None:
        found = "a mask of actions" if isinstance(space, Discrete) else f"{type(space).__name__} actions"
        raise SpecError(
            f"propensities = {value!r}",
            f"one discrete action without a mask, found {found}",
            "record the probability of each decision",
        )
    try:
        chances, _ = probabilities_of(declaration, labels_of(space))
        by, stratum = declaration.by or (), None
        if by:
            columns = {one.name: one.values for one in observed_columns(log)} | log.extra
            unknown = [name for name in by if name not in columns]
            if unknown:
                raise ConfigError(
                    f"propensities = {value!r}: no column '{unknown[0]}' among observations and extra columns",
                    fix=f"{nearest(unknown[0], list(columns))}, or declare it in the mapping",
                )
            stratum = strata_of([np.asarray(columns[name]) for name in by])
            check_strata(stratum, by)
    except DeclarationError as error:
        raise ConfigError(f"propensities = {value!r}: {error}") from error
    declared = DeclaredPropensities(chances, by)
    column = propensity_column(declared, np.asarray(log.action), stratum, space.n)
    return replace(log, propensity=column, declared=declared, stratum=stratum)


def observed_columns(log: Log) -> list[Observed]:
    """The columns [N] of the observation that hold words or numbers, and the time of the row."""
    position, columns = np.asarray(log.position), list[Observed]()
    for name, leaf in log.spec.observation.items():
        if isinstance(leaf, Image):
            continue
        values = np.asarray(log.observation[name])[position]
        names = leaf.names or tuple(f"{name}[{place}]" for place in range(values.shape[1]))
        columns += [
            Observed(one, values[:, place], isinstance(leaf, Codes))
            for place, one in zip(range(values.shape[1]), names, strict=False)
        ]
    if log.time is not None:
        columns += [Observed(TIME, one, False) for one in [as_number(np.asarray(log.time))] if np.isfinite(one).all()]
    return columns


def log_balance(log: Log) -> Balance | None:
    """Whether observations predict the action beyond declared propensities, or without any beyond its shares."""
    if not isinstance(log.spec.action, Discrete) or log.action_mask is not None:
        return None
    declared, action = log.declared, np.asarray(log.action)
    before = np.where(np.asarray(log.step) > 0, np.roll(action, 1), -1)
    by = () if declared is None else declared.by
    return balance_of(
        [one for one in observed_columns(log) if one.name not in by],
        action,
        log.spec.action.n,
        chances=None if declared is None or declared.probabilities is None else np.asarray(declared.probabilities),
        stratum=None if log.stratum is None else np.asarray(log.stratum),
        clusters=None if log.cluster is None else np.asarray(log.cluster),
        before=before,
    )


def recorded_fit(log: Log, recorded: NDArray[Any]) -> Balance | None:
    """Whether recorded propensities [N] of discrete actions fit the logged actions."""
    if not isinstance(log.spec.action, Discrete) or (np.asarray(recorded) > 1).any():
        return None
    return fit_of(
        observed_columns(log),
        np.asarray(log.action, np.int64),
        np.asarray(recorded, np.float64),
        log.spec.action.n,
        None if log.cluster is None else np.asarray(log.cluster),
        masked=log.action_mask is not None,
    )
