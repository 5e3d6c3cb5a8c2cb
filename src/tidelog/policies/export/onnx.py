"""A policy as one ONNX file for any ONNX runtime: raw observations (or histories) in, actions (or lists) out.

Traced from the same recipe that NumPy computes. It includes scaling, fills of missing values and bounds. The batch size
is free. Inputs that most callers omit have a default in the file: `mask` (all actions allowed) and `noise` (none: the
deterministic action). Letters: `B` batch, `K` columns of a leaf.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from tidelog.errors import ExportError
from tidelog.policies.export.manifest import recipe_of
from tidelog.policies.export.onnx_graphs import Input, acting_graph
from tidelog.policies.export.onnx_lists import listing_graph
from tidelog.runtime.history_encoders import LISTED

OPSET = 21


def onnx_file(policy: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the content of an ONNX file, and the manifest entry of its inputs and outputs.

    Raises ExportError where the extra is not installed, or a part of the policy has no recipe.
    """
    recipe, spec = recipe_of(policy), policy.spec
    to_onnx, onnx = _tools()
    lists = recipe["act"]["kind"] == LISTED
    inputs, program, outputs = listing_graph(recipe, spec) if lists else acting_graph(recipe, spec, policy.scaler)
    shapes = [jax.ShapeDtypeStruct(one.shape, jnp.dtype(one.kind)) for one in inputs]  # type: ignore[no-untyped-call]
    names = [one.name for one in inputs]
    with _silent_inner_shapes():
        model = to_onnx(
            program, inputs=shapes, model_name="tidelog policy", opset=OPSET, input_names=names, output_names=outputs
        )
    facts = {"opset": OPSET, "inputs": [_input_entry(one) for one in inputs], "outputs": outputs}
    _give_defaults(onnx, model, inputs)
    onnx.helper.set_model_props(model, {"tidelog": json.dumps({**facts, "spec": spec.to_json()})})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString()), facts


@contextmanager
def _silent_inner_shapes() -> Iterator[None]:
    """Silence onnx_ir about inner values whose types jax2onnx leaves open; they are removed in any case."""
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
        raise ExportError(f"ONNX export requires an extra ({error}). fix: pip install 'tidelog[onnx]'") from error


def _input_entry(one: Input) -> dict[str, Any]:
    return {"name": one.name, "shape": list(one.shape), "type": one.kind, "optional": one.default is not None}


def _give_defaults(onnx: Any, model: Any, inputs: Sequence[Input]) -> None:
    """Add defaults of one row, valid for all rows of a batch."""
    declared = {value.name: value for value in model.graph.input}
    for one in inputs:
        if one.default is not None:
            model.graph.initializer.append(onnx.numpy_helper.from_array(one.default, one.name))
            batch = declared[one.name].type.tensor_type.shape.dim[one.shape.index("B")]
            batch.dim_param = f"B or 1 ({one.name})"
    del model.graph.value_info[:]  # inner shapes are traced for defaults of B rows; runtimes infer them again
