"""The sampler of a phase over the log, from an algorithm's own fields: rows or windows, uniform or prioritised."""

from __future__ import annotations

from typing import Any, Protocol

from tidelog.algorithms.core.priorities import ordered
from tidelog.algorithms.core.sampling import LoggedAction, NStep, Sampler, Unit, Window


class SamplerFields(Protocol):
    """The fields for the batch size and for windows."""

    @property
    def batch_size(self) -> int: ...
    @property
    def recurrent_size(self) -> int | None: ...
    @property
    def window(self) -> int: ...
    @property
    def burn_in(self) -> int: ...


class ValueSamplerFields(SamplerFields, Protocol):
    """The fields of an algorithm that learns values."""

    @property
    def n_step(self) -> int: ...
    @property
    def discount(self) -> Any: ...
    @property
    def priority_exponent(self) -> Any: ...
    @property
    def priority_correction(self) -> Any: ...


def decisions(config: SamplerFields) -> Sampler:
    """Return a uniform sampler of decisions, or of windows of decisions for recurrent networks."""
    return Sampler("log", config.batch_size, _unit(config, LoggedAction()))


def transitions(config: ValueSamplerFields) -> Sampler:
    """Return a sampler of n-step transitions, or of windows of them; prioritised where there is an exponent."""
    order = ordered(config.priority_exponent, config.priority_correction)
    return Sampler("log", config.batch_size, _unit(config, NStep(config.n_step, config.discount)), order)


def _unit(config: SamplerFields, unit: NStep | LoggedAction) -> Unit:
    return unit if config.recurrent_size is None else Window(unit, config.window, config.burn_in)
