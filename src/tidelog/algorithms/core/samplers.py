"""What a phase draws from the log, as an algorithm's own fields say it: rows or windows, by chance or by priority."""

from __future__ import annotations

from typing import Any, Protocol

from tidelog.algorithms.core.priorities import ordered
from tidelog.algorithms.core.sampling import LoggedAction, NStep, Sampler, Unit, Window


class Along(Protocol):
    """The fields that say how many samples a batch has, and whether they are windows."""

    @property
    def batch_size(self) -> int: ...
    @property
    def recurrent_size(self) -> int | None: ...
    @property
    def window(self) -> int: ...
    @property
    def burn_in(self) -> int: ...


class Valued(Along, Protocol):
    """The fields of an algorithm that learns what decisions are worth."""

    @property
    def n_step(self) -> int: ...
    @property
    def discount(self) -> Any: ...
    @property
    def priority_exponent(self) -> Any: ...
    @property
    def priority_correction(self) -> Any: ...


def decisions(config: Along) -> Sampler:
    """Decisions of the log, or with a memory windows of them, every one equally likely."""
    return Sampler("log", config.batch_size, _along(config, LoggedAction()))


def transitions(config: Valued) -> Sampler:
    """Decisions and what followed, or with a memory windows of them, by priority where there is an exponent."""
    order = ordered(config.priority_exponent, config.priority_correction)
    return Sampler("log", config.batch_size, _along(config, NStep(config.n_step, config.discount)), order)


def _along(config: Along, unit: NStep | LoggedAction) -> Unit:
    return unit if config.recurrent_size is None else Window(unit, config.window, config.burn_in)
