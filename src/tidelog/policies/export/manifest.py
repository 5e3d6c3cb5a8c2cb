"""The content of a saved policy: weights, and a manifest to run it with JAX, with NumPy, or as ONNX."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from tidelog.algorithms import algorithm_name
from tidelog.algorithms.core.contract import Portable
from tidelog.algorithms.core.hyperparameters import to_config
from tidelog.errors import ExportError
from tidelog.networks.recipe import named
from tidelog.policies.named_arrays import array_file
from tidelog.runtime.artefact_files import WEIGHTS, described

PACKAGES = ("tidelog", "jax", "equinox", "numpy")


def contents(policy: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of a policy and its manifest, without ONNX, parity and metrics."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    manifest = {
        "algorithm": algorithm_name(policy.algorithm),
        "config": to_config(policy.algorithm),
        "spec": policy.spec.to_json(),
        "scaler": policy.scaler.to_json(),
        **described(policy.spec),
        "origin": policy.origin,
        "metrics": None,
        "versions": {**versions, "python": platform.python_version()},
        "recipe": plain_recipe(policy),
        "onnx": None,
        "parity": None,
    }
    return {WEIGHTS: array_file(policy.params)}, manifest


def recipe_of(policy: Any) -> Mapping[str, Any]:
    """Return the acting computation as nodes with arrays; ExportError for custom modules."""
    if not isinstance(policy.algorithm, Portable):
        raise ExportError(
            f"{type(policy.algorithm).__name__} has no recipe(), only the JAX runtime can run it. fix: add recipe()"
        )
    return policy.algorithm.recipe(policy.params)


def plain_recipe(policy: Any) -> dict[str, Any] | None:
    """Return the recipe with the names of arrays in place of the arrays, or None without a recipe."""
    try:
        nodes: dict[str, Any] = named(recipe_of(policy), policy.params)
    except ExportError:
        return None
    return nodes
