"""Messages between a run and its collectors: a JSON header and NumPy arrays, as safetensors.

A collector is told its `Plan` once and answers a `Request` with a `Reply` for each rollout. The names of arrays begin
with the member's number; leaves of a pytree follow by their place, arrays of a saved environment by their name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tidelog.errors import EnvironmentFailure
from tidelog.schema import decode

Named = dict[str, np.ndarray[Any, Any]]
Header = TypeVar("Header")
HEADER = "header"
Begin = Literal["go on", "restore", "reset"]


class Plan(msgspec.Struct, frozen=True):
    """What a collector makes at its start."""

    environment: str
    copies: int  # of each member, in this block
    block: int
    seeds: list[int]  # of the members
    algorithm: str
    configs: list[dict[str, Any]]  # of the members
    recorded: bool
    modules: list[str]  # that register the algorithm or the environment
    paths: list[str]  # where they are found
    settings: dict[str, Any]  # of JAX: those that change results


class Request(msgspec.Struct, frozen=True):
    """One rollout of every member: arrays `params`, `key`, `carried`, and with "restore" a `state`."""

    round: int
    begin: Begin


class Reply(msgspec.Struct, frozen=True):
    """What a collector says. A rollout has arrays `columns`, `carried`, and `state` of what can be saved."""

    kind: Literal["ready", "step", "rollout", "error"]
    spec: dict[str, Any] = {}  # of the environment that is ready
    reset: bool = False  # whether every copy was reset before the rollout
    error: str = ""  # the name of its class
    text: str = ""
    member: int | None = None  # whose environment failed


def pack(header: msgspec.Struct, arrays: Mapping[str, np.ndarray[Any, Any]] | None = None) -> bytes:
    """Return a message."""
    return save({**(arrays or {}), HEADER: np.frombuffer(msgspec.json.encode(header), np.uint8)})


def unpack(message: bytes, kind: type[Header]) -> tuple[Header, Named]:
    """Return the header and the arrays of a message; EnvironmentFailure if it is something else."""
    fix = "install the same versions everywhere"
    try:
        arrays = load(message)
        text = arrays.pop(HEADER).tobytes()
    except (SafetensorError, KeyError, ValueError) as error:
        raise EnvironmentFailure(f"a message of a collector cannot be read: {error}. fix: {fix}") from error
    return decode(text, kind, "a message of a collector", EnvironmentFailure, fix), arrays


def numbered(prefix: str, leaves: Iterable[Any]) -> Named:
    """Return leaves by their place."""
    return {f"{prefix}/{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}


def in_order(prefix: str, arrays: Named) -> list[np.ndarray[Any, Any]]:
    """Return the leaves of `numbered`."""
    count = sum(name.startswith(f"{prefix}/") for name in arrays)
    return [arrays[f"{prefix}/{place}"] for place in range(count)]


def named(prefix: str, arrays: Named) -> Named:
    """Return the arrays below a prefix, by the rest of their names; copies, which may be changed."""
    return {name.removeprefix(f"{prefix}/"): a.copy() for name, a in arrays.items() if name.startswith(f"{prefix}/")}
