"""The traced function of an ONNX file of an acting policy: named inputs, the function, named outputs.

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
from tidelog.runtime.policy_heads import KINDS, PolicyOutputs, Seen
from tidelog.runtime.recipe import noise_of
from tidelog.types import Codes, Continuous, Discrete, Image, Leaf, Spec, Vector


class Input(NamedTuple):
    """One input of the file: its name, its shape with "B" for the batch, its type, and its default or None."""

    name: str
    shape: tuple[str | int, ...]
    kind: str
    default: np.ndarray[Any, Any] | None = None


class OnnxGraph(NamedTuple):
    """The traced function, from the arrays of the inputs to the arrays of the output names."""

    inputs: list[Input]
    program: Callable[..., tuple[Any, ...]]
    outputs: list[str]


def acting_graph(recipe: Mapping[str, Any], spec: Spec, scaler: Scaler) -> OnnxGraph:
    """Return the graph from raw observations to actions in their own units."""
    inputs = _inputs(recipe, spec)
    return OnnxGraph(inputs, *_program(recipe, spec, scaler, [one.name for one in inputs]))


def _inputs(recipe: Mapping[str, Any], spec: Spec) -> list[Input]:
    inputs = [_leaf_input(name, leaf) for name, leaf in sorted(spec.observation.items())]
    if isinstance(spec.action, Discrete):
        inputs.append(Input("mask", ("B", spec.action.n), "bool", np.ones((1, spec.action.n), bool)))
    if recipe["carry"]:
        inputs.append(Input("carry", ("B", recipe["carry"]), "float32"))
    noise = noise_of(recipe, spec)
    if noise is not None and noise.kind == "latents":
        count, size = noise.shape
        inputs.append(Input("noise", (count, "B", size), "float32", np.asarray(recipe["act"]["latents"])[:, None]))
    elif noise is not None:
        inputs.append(Input("noise", ("B", *noise.shape), "float32", np.zeros((1, *noise.shape), np.float32)))
    return inputs


def _leaf_input(name: str, leaf: Leaf) -> Input:
    if isinstance(leaf, Image):
        return Input(name, ("B", leaf.height, leaf.width, leaf.channels), "uint8")
    if isinstance(leaf, Codes):
        return Input(name, ("B", len(leaf.sizes)), "int32")
    return Input(name, ("B", len(column_names(leaf)) or leaf.size), "float32")


def _program(
    recipe: Mapping[str, Any], spec: Spec, scaler: Scaler, names: Sequence[str]
) -> tuple[Callable[..., Any], list[str]]:
    """Return the traced function from the named arrays to the named outputs."""
    gaussian = isinstance(spec.action, Continuous) and recipe["act"].get("head", {}).get("kind") == "gaussian"
    outputs = ["action", *(["probabilities"] if isinstance(spec.action, Discrete) else [])]
    outputs += [*(["mean", "spread"] if gaussian else []), *(["next_carry"] if recipe["carry"] else [])]

    def program(*arrays: jax.Array) -> tuple[Any, ...]:
        arrays_by_name = dict(zip(names, arrays, strict=True))
        filled: dict[str, Any] = {n: _filled(leaf, arrays_by_name[n]) for n, leaf in spec.observation.items()}
        leaves = scaler.observation(filled)
        seen = Seen(leaves, arrays_by_name.get("mask"), arrays_by_name.get("carry"), arrays_by_name.get("noise"))
        result = _own_units(KINDS[recipe["act"]["kind"]](jnp, recipe["act"], seen), spec)
        by_name = {**result._asdict(), "next_carry": result.carry}
        return tuple(by_name[name] for name in outputs)

    return program, outputs


def _filled(leaf: Leaf, values: jax.Array) -> jax.Array:
    """Return a leaf's features from its columns [B, K]: NaN replaced by the log's rule, and flagged."""
    if not isinstance(leaf, Vector) or not leaf.fills:
        return values
    fills, names = dict(leaf.fills), column_names(leaf)
    missing = jnp.isnan(values)
    filled = jnp.where(missing, jnp.asarray([fills.get(name, np.nan) for name in names], jnp.float32), values)
    columns = {name: filled[:, i] for i, name in enumerate(names)}
    columns |= {f"{name} missing": missing[:, i].astype(jnp.float32) for i, name in enumerate(names)}
    return jnp.stack([columns[name] for name in leaf.names], axis=-1)


def _own_units(result: PolicyOutputs, spec: Spec) -> PolicyOutputs:
    space = spec.action
    if not isinstance(space, Continuous):
        return result._replace(action=result.action.astype(jnp.int32))
    half = space.from_unit(1.0) - space.from_unit(0.0)
    result = result._replace(action=space.executed(result.action))
    return (
        result
        if result.mean is None
        else result._replace(mean=space.from_unit(result.mean), spread=result.spread * half)
    )
