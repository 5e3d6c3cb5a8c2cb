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
    def memory(self) -> int | None: ...
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


def decisions(h: Along) -> Sampler:
    """Decisions of the log, or with a memory windows of them, every one equally likely."""
    return Sampler("log", h.batch_size, _along(h, LoggedAction()))


def transitions(h: Valued) -> Sampler:
    """Decisions and what followed, or with a memory windows of them, by priority where there is an exponent."""
    order = ordered(h.priority_exponent, h.priority_correction)
    return Sampler("log", h.batch_size, _along(h, NStep(h.n_step, h.discount)), order)


def _along(h: Along, unit: NStep | LoggedAction) -> Unit:
    return unit if h.memory is None else Window(unit, h.window, h.burn_in)
