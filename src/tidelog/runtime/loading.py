"""Loading a saved policy, folder or zip, for acting or ranking with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.errors import CheckpointError
from tidelog.runtime.artefact_files import Saved
from tidelog.runtime.history_encoders import LISTED, reading_of
from tidelog.runtime.manifest_limits import check_lists, check_outputs, check_sizes
from tidelog.runtime.policy import Policy
from tidelog.runtime.policy_heads import KINDS, PolicyOutputs, Seen, smallest
from tidelog.runtime.ranking import Ranker
from tidelog.runtime.recipe import Recipe, noise_of, restored
from tidelog.runtime.recommender import Recommender

NumpyArray = np.ndarray[Any, Any]
CHUNK = 4096  # rows computed at once; fewer for candidates, because each row has many
CHUNK_OF_CANDIDATES = 64


def load(path: str | Path) -> Policy | Recommender:
    """Load a saved folder or zip: a policy that acts, or one that ranks items.

    Raises CheckpointError where it is missing, of another kind, changed, incomplete, or a custom module without recipe.
    """
    saved = Saved(path)
    if saved.manifest["recipe"] is None:
        raise CheckpointError(
            f"{saved.path} contains a custom module; only the JAX runtime can run it. fix: tl.load_policy"
        )
    try:
        arrays = saved.arrays()
        recipe = restored(saved.manifest["recipe"], arrays, saved.where)
        check_sizes(recipe, saved.spec, arrays, saved.where)
        return _ranks(saved, recipe) if recipe["act"]["kind"] == LISTED else _acts(saved, recipe)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{saved.where}: invalid recipe: {error!r}. fix: export the policy again") from error


def _acts(saved: Saved, recipe: Recipe) -> Policy:
    spec, scales, act, values = saved.spec, saved.scales, recipe["act"], recipe["values"]
    kind, noise = KINDS[act["kind"]], noise_of(recipe, spec)
    epsilon = act.get("epsilon") if noise is not None and noise.kind == "normal" else None

    def scaled(leaves: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
        return {n: (x - scales[n][0]) / scales[n][1] if n in scales else x for n, x in leaves.items()}

    def make(seen: Seen) -> PolicyOutputs:
        return kind(np, act, seen._replace(leaves=scaled(seen.leaves)))

    rate = None if values is None else lambda leaves: smallest(np, values, scaled(leaves))
    check_outputs(make, rate, recipe["carry"], spec, saved.where)
    chunk = CHUNK_OF_CANDIDATES if act["kind"] == "candidates" else CHUNK
    return Policy(saved, make, rate, noise=noise, epsilon=epsilon, width=recipe["carry"], chunk=chunk)


def _ranks(saved: Saved, recipe: Recipe) -> Recommender:
    def make() -> Ranker:
        return Ranker(reading_of(recipe["act"]))

    return Recommender(saved, check_lists(make, saved.spec, saved.where))
