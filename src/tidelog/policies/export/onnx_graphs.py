"""What is traced for an ONNX file of a policy that acts: named inputs, a function of them, named outputs.

Letters: `B` batch, `K` columns of a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.data.scaling import Scaler
from tidelog.runtime.observations import column_names
from tidelog.runtime.policy_heads import KINDS, Made, Seen
from tidelog.runtime.recipe import noise_of
from tidelog.types import Codes, Continuous, Discrete, Image, Leaf, Spec, Vector


class Input(NamedTuple):
    """One input of the file: its name, its shape with "B" for the batch, its type, and its default if it has one."""

    name: str
    shape: tuple[str | int, ...]
    kind: str
    default: np.ndarray[Any, Any] | None = None


class OnnxGraph(NamedTuple):
    """What is traced: a function from arrays as the inputs say to arrays of the outputs' names."""

    inputs: list[Input]
    program: Callable[..., tuple[Any, ...]]
    outputs: list[str]


def acting_graph(recipe: Mapping[str, Any], spec: Spec, scaler: Scaler) -> OnnxGraph:
    """Raw observations in, actions in their own units out."""
    inputs = _inputs(recipe, spec)
    return OnnxGraph(inputs, *_program(recipe, spec, scaler, [one.name for one in inputs]))


def _inputs(recipe: Mapping[str, Any], spec: Spec) -> list[Input]:
    found = [_leaf_input(name, leaf) for name, leaf in sorted(spec.observation.items())]
    if isinstance(spec.action, Discrete):
        found.append(Input("mask", ("B", spec.action.n), "bool", np.ones((1, spec.action.n), bool)))
    if recipe["carry"]:
        found.append(Input("carry", ("B", recipe["carry"]), "float32"))
    noise = noise_of(recipe, spec)
    if noise is not None and noise.kind == "latents":
        count, size = noise.shape
        found.append(Input("noise", (count, "B", size), "float32", np.asarray(recipe["act"]["latents"])[:, None]))
    elif noise is not None:
        found.append(Input("noise", ("B", *noise.shape), "float32", np.zeros((1, *noise.shape), np.float32)))
    return found


def _leaf_input(name: str, leaf: Leaf) -> Input:
    if isinstance(leaf, Image):
        return Input(name, ("B", leaf.height, leaf.width, leaf.channels), "uint8")
    if isinstance(leaf, Codes):
        return Input(name, ("B", len(leaf.sizes)), "int32")
    return Input(name, ("B", len(column_names(leaf)) or leaf.size), "float32")


def _program(
    recipe: Mapping[str, Any], spec: Spec, scaler: Scaler, names: Sequence[str]
) -> tuple[Callable[..., Any], list[str]]:
    """The function to trace, from the named arrays to the named outputs."""
    gaussian = isinstance(spec.action, Continuous) and recipe["act"].get("head", {}).get("kind") == "gaussian"
    outputs = ["action", *(["probabilities"] if isinstance(spec.action, Discrete) else [])]
    outputs += [*(["mean", "spread"] if gaussian else []), *(["next_carry"] if recipe["carry"] else [])]

    def program(*arrays: jax.Array) -> tuple[Any, ...]:
        given = dict(zip(names, arrays, strict=True))
        filled: dict[str, Any] = {n: _filled(leaf, given[n]) for n, leaf in spec.observation.items()}
        leaves = scaler.observation(filled)
        seen = Seen(leaves, given.get("mask"), given.get("carry"), given.get("noise"))
        made = _own_units(KINDS[recipe["act"]["kind"]](jnp, recipe["act"], seen), spec)
        told = {**made._asdict(), "next_carry": made.carry}
        return tuple(told[name] for name in outputs)

    return program, outputs


def _filled(leaf: Leaf, values: jax.Array) -> jax.Array:
    """The features of a leaf from its columns [B, K]: NaN replaced where the log's rule says so, and flagged."""
    if not isinstance(leaf, Vector) or not leaf.fills:
        return values
    fills, names = dict(leaf.fills), column_names(leaf)
    missing = jnp.isnan(values)
    filled = jnp.where(missing, jnp.asarray([fills.get(name, np.nan) for name in names], jnp.float32), values)
    columns = {name: filled[:, i] for i, name in enumerate(names)}
    columns |= {f"{name} missing": missing[:, i].astype(jnp.float32) for i, name in enumerate(names)}
    return jnp.stack([columns[name] for name in leaf.names], axis=-1)


def _own_units(made: Made, spec: Spec) -> Made:
    space = spec.action
    if not isinstance(space, Continuous):
        return made._replace(action=made.action.astype(jnp.int32))
    half = space.from_unit(1.0) - space.from_unit(0.0)
    made = made._replace(action=space.executed(made.action))
    return made if made.mean is None else made._replace(mean=space.from_unit(made.mean), spread=made.spread * half)
