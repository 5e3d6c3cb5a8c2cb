"""A policy as one ONNX file that any ONNX runtime computes: raw observations in, actions in their own units out.

Traced from the same recipe that NumPy computes. Scales, fills of missing values and bounds are inside. The batch is
free. Whatever most callers leave away has a default in the file: `mask` (everything is allowed) and `noise` (none: the
deterministic action). Letters: `B` batch, `K` columns of a leaf.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.acting.artefact import recipe_of
from tidelog.data.scaling import Scaler
from tidelog.errors import ExportError
from tidelog.runtime.acts import KINDS, Made, Seen
from tidelog.runtime.intake import column_names
from tidelog.runtime.recipe import noise_of
from tidelog.types import Codes, Continuous, Discrete, Image, Leaf, Spec, Vector

OPSET = 21


class Input(NamedTuple):
    """One input of the file: its name, its shape with "B" for the batch, its type, and its default if it has one."""

    name: str
    shape: tuple[str | int, ...]
    kind: str
    default: np.ndarray[Any, Any] | None = None


def onnx_file(policy: Any) -> tuple[bytes, dict[str, Any]]:
    """The content of an ONNX file, and what a manifest says of its inputs and outputs.

    Raises ExportError where the extra is not installed, or a part of the policy has no recipe.
    """
    recipe, spec = recipe_of(policy), policy.spec
    to_onnx, onnx = _tools()
    inputs = _inputs(recipe, spec)
    shapes = [jax.ShapeDtypeStruct(one.shape, jnp.dtype(one.kind)) for one in inputs]  # type: ignore[no-untyped-call]
    names = [one.name for one in inputs]
    program, outputs = _program(recipe, spec, policy.scaler, names)
    with _no_word_of_inner_shapes():
        model = to_onnx(
            program, inputs=shapes, model_name="tidelog policy", opset=OPSET, input_names=names, output_names=outputs
        )
    facts = {"opset": OPSET, "inputs": [_told(one) for one in inputs], "outputs": outputs}
    _give_defaults(onnx, model, inputs)
    onnx.helper.set_model_props(model, {"tidelog": json.dumps({**facts, "spec": spec.to_json()})})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString()), facts


@contextmanager
def _no_word_of_inner_shapes() -> Iterator[None]:
    """jax2onnx leaves types of some inner values open, and onnx_ir says so for each: they are removed in any case."""
    logger = logging.getLogger("onnx_ir.serde")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _tools() -> tuple[Callable[..., Any], Any]:
    try:
        return importlib.import_module("jax2onnx").to_onnx, importlib.import_module("onnx")
    except ImportError as error:
        raise ExportError(f"ONNX needs an extra: pip install 'tidelog[onnx]' ({error})") from error


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


def _told(one: Input) -> dict[str, Any]:
    return {"name": one.name, "shape": list(one.shape), "type": one.kind, "optional": one.default is not None}


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
    made = made._replace(action=space.from_unit(jnp.clip(made.action, -1.0, 1.0)))
    return made if made.mean is None else made._replace(mean=space.from_unit(made.mean), spread=made.spread * half)


def _give_defaults(onnx: Any, model: Any, inputs: Sequence[Input]) -> None:
    """Defaults of one row, which counts for all rows of a batch."""
    declared = {value.name: value for value in model.graph.input}
    for one in inputs:
        if one.default is not None:
            model.graph.initializer.append(onnx.numpy_helper.from_array(one.default, one.name))
            batch = declared[one.name].type.tensor_type.shape.dim[one.shape.index("B")]
            batch.dim_param = f"B or 1 ({one.name})"
    del model.graph.value_info[:]  # shapes within, which were traced for defaults of B rows; runtimes find them anew
