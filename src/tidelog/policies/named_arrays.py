"""Pytrees as files of named arrays: safetensors, never pickle. The name of an array is its path in the pytree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from tidelog.errors import CheckpointError
from tidelog.input_files import check_regular
from tidelog.networks.arrays import from_host

Tree = TypeVar("Tree")
Named = dict[str, np.ndarray[Any, Any]]


def named_arrays(tree: Any) -> Named:
    """Return every array of a pytree by its path; random keys as their data."""
    arrays = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if eqx.is_array(leaf):
            arrays[jax.tree_util.keystr(path)] = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return arrays


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def array_file(tree: Any) -> bytes:
    """Return a pytree's arrays as the content of a safetensors file."""
    return bytes(save({name: np.array(array, order="C") for name, array in named_arrays(tree).items()}))


def read_arrays(path: Path) -> Named:
    """Return the arrays of a safetensors file; CheckpointError for another file."""
    try:
        check_regular(path)
        return dict(load_file(path))
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is not a valid safetensors file: {error}. fix: save it again") from error


def fill(template: Tree, arrays: Mapping[str, np.ndarray[Any, Any]], where: str) -> Tree:
    """Replace the template's arrays by those of a file; CheckpointError unless names and shapes are equal."""
    paths, structure = jax.tree_util.tree_flatten_with_path(template)
    expected = {jax.tree_util.keystr(path) for path, leaf in paths if eqx.is_array(leaf)}
    if expected != set(arrays):
        different = sorted(expected.symmetric_difference(arrays))
        raise CheckpointError(
            f"{where} has {len(arrays)} arrays, expected {len(expected)} for this algorithm; first differences: "
            f"{', '.join(different[:3])}. fix: pass the algorithm with the settings of this file"
        )
    leaves = [_filled(leaf, arrays.get(jax.tree_util.keystr(path)), where, path) for path, leaf in paths]
    filled: Tree = jax.tree_util.tree_unflatten(structure, leaves)
    return filled


def _filled(leaf: Any, array: np.ndarray[Any, Any] | None, where: str, path: Any) -> Any:
    if array is None:
        return leaf
    expected = jax.random.key_data(leaf) if _is_key(leaf) else leaf
    if array.shape != expected.shape or array.dtype != expected.dtype:
        raise CheckpointError(
            f"{where}: {jax.tree_util.keystr(path)} is {array.dtype}{list(array.shape)}, "
            f"expected {expected.dtype}{list(expected.shape)}. fix: pass the algorithm with the settings of this file"
        )
    return jax.random.wrap_key_data(from_host(array)) if _is_key(leaf) else from_host(array)


def fingerprint(tree: Any) -> str:
    """Return the SHA-256 of names, types, shapes and bits of all arrays of a pytree."""
    digest = hashlib.sha256()
    for name, array in sorted(named_arrays(tree).items()):
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
