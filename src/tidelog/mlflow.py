"""The MLflow flavour of a policy: `save_model`, `log_model`, `load_model`, and a `python_function` that acts.

The model holds the policy as `policy.save` writes it; nothing in it is executed when it is read. Its `python_function`
runs with NumPy alone (`tidelog.runtime`); `mlflow models serve` needs no JAX program to be compiled.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog import runtime
from tidelog.errors import SpecError
from tidelog.runtime.artefact_files import Saved
from tidelog.runtime.observations import column_names
from tidelog.runtime.way_of_acting import Acts, verdict_line
from tidelog.sinks.tracker import import_package
from tidelog.types import Catalogue, Codes, Continuous, Discrete, Image, Leaf, MultiDiscrete, Spec

if TYPE_CHECKING:  # a model is served without an import of JAX
    import tidelog.policies.policy

FLAVOR = "tidelog"
DATA = "policy"  # the folder of the policy in the model's `data`


def save_model(
    policy: tidelog.policies.policy.Policy, path: str | Path, mlflow_model: Any = None, **settings: Any
) -> None:
    """Write a policy as an MLflow model folder, with its signature.

    Further keywords are those of `mlflow.pyfunc.save_model`, such as `pip_requirements` (default: this version of
    tidelog), `input_example` or `metadata`. Raises ConfigError without the extra `mlflow`, SpecError for a policy that
    needs a memory or ranks items: an MLflow model answers every row by itself.
    """
    pyfunc, models = import_package("mlflow.pyfunc", "mlflow"), import_package("mlflow.models", "mlflow")
    settings.setdefault("signature", signature_of(policy.spec))
    settings.setdefault("input_example", example_of(policy.spec))
    if "conda_env" not in settings:
        settings.setdefault("pip_requirements", [f"tidelog=={metadata.version('tidelog')}"])
    if policy.is_recurrent:
        raise SpecError("this policy is recurrent, and MLflow has no memory between calls. fix: use `tidelog serve`")
    acting = {"acting": policy.acting or "mode", "verdict": verdict_line(policy.verdict)}
    settings["metadata"] = {**acting, **(settings.get("metadata") or {})}
    model = models.Model() if mlflow_model is None else mlflow_model
    model.add_flavor(FLAVOR, data=f"data/{DATA}", version=metadata.version("tidelog"))
    with tempfile.TemporaryDirectory() as folder:
        saved = policy.save(Path(folder) / DATA)
        pyfunc.save_model(str(path), loader_module=__name__, data_path=str(saved), mlflow_model=model, **settings)


def log_model(
    policy: tidelog.policies.policy.Policy,
    name: str = "policy",
    *,
    registered_model_name: str | None = None,
    **settings: Any,
) -> Any:
    """Log a policy as a model of MLflow's active run, and register it under a name if there is one; return its facts.

    Further keywords are those of `save_model`, or of `mlflow.models.Model.log` such as `run_id`. Errors as there.
    """
    models = import_package("mlflow.models", "mlflow")
    return models.Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        policy=policy,
        registered_model_name=registered_model_name,
        **settings,
    )


def load_model(model_uri: str) -> tidelog.policies.policy.Policy:
    """Return the policy of an MLflow model, by its folder or an address such as `models:/name/1` or `runs:/ID/policy`.

    Raises CheckpointError where the model holds no policy or a changed one, ConfigError without the extra `mlflow`.
    """
    from tidelog.policies.policy import load_learnt_policy

    artifacts = import_package("mlflow.artifacts", "mlflow")
    return load_learnt_policy(Path(artifacts.download_artifacts(artifact_uri=str(model_uri))) / "data" / DATA)


class PolicyModel:
    """What `mlflow.pyfunc.load_model` wraps: observations in, actions out, in the policy's declared way."""

    def __init__(self, policy: Acts) -> None:
        self.policy = policy

    def predict(self, model_input: Any, params: Any = None) -> np.ndarray[Any, Any]:
        """Return an action [B, ...] for every row of a data frame, an array, or a mapping of arrays by name.

        Labels for actions that the log named. SpecError for wrong names, counts or values.
        """
        return np.asarray(self.policy(model_input))


def _load_pyfunc(path: str) -> PolicyModel:
    """Read the policy for `mlflow.pyfunc.load_model`, which calls a loader module by this name."""
    if Saved(path).manifest["recipe"] is None:  # a custom module, which only JAX runs
        from tidelog.policies.policy import load_learnt_policy

        return PolicyModel(load_learnt_policy(path))
    policy = runtime.load(path)
    if not isinstance(policy, Acts):
        raise SpecError(_RANKS)
    return PolicyModel(policy)


_RANKS = "this policy ranks items, and the MLflow flavour is for policies that act. fix: use `tidelog serve`"


def signature_of(spec: Spec) -> Any:
    """Return the MLflow signature of a spec: columns where the log had names, else arrays; SpecError for lists."""
    if isinstance(spec.action, Catalogue):
        raise SpecError(_RANKS)
    models = import_package("mlflow.models", "mlflow")
    types = import_package("mlflow.types", "mlflow")
    return models.ModelSignature(
        inputs=types.Schema(_inputs(spec, types)), outputs=types.Schema([_output(spec, types)])
    )


def example_of(spec: Spec) -> Any:
    """Return one observation in the form of the signature: numbers are 0, words the first of the log."""
    if _has_names(spec):
        row: dict[str, Any] = {}
        for leaf in spec.observation.values():
            for name, words in _columns(leaf).items():
                row[name] = [words[0] if words else 0 if isinstance(leaf, Codes) else 0.0]
        return import_package("pandas", "mlflow").DataFrame(row)
    leaves = {}
    for name, leaf in spec.observation.items():
        kind, shape = _tensor(leaf)
        leaves[name] = np.zeros((1, *shape[1:]), kind)
    return leaves if len(leaves) > 1 else next(iter(leaves.values()))


def _has_names(spec: Spec) -> bool:
    """Whether every part of an observation is columns that the log named."""
    return not any(isinstance(leaf, Image) or not _columns(leaf) for leaf in spec.observation.values())


def _columns(leaf: Any) -> dict[str, tuple[str, ...]]:
    """Return the columns of a leaf with the words of each; () for numbers and codes."""
    names = column_names(leaf)
    words = leaf.vocabularies if isinstance(leaf, Codes) and leaf.vocabularies else ((),) * len(names)
    return dict(zip(names, words, strict=True))


def _inputs(spec: Spec, types: Any) -> list[Any]:
    leaves = spec.observation
    if not _has_names(spec):
        several = len(leaves) > 1
        return [types.TensorSpec(*_tensor(leaf), name if several else None) for name, leaf in leaves.items()]
    columns = []
    for leaf in leaves.values():
        fills = dict(getattr(leaf, "fills", ()))
        for name, words in _columns(leaf).items():
            kind = "string" if words else "long" if isinstance(leaf, Codes) else "double"
            columns.append(types.ColSpec(kind, name, required=name not in fills))
    return columns


def _tensor(leaf: Leaf) -> tuple[Any, tuple[int, ...]]:
    if isinstance(leaf, Image):
        return np.dtype(np.uint8), (-1, leaf.height, leaf.width, leaf.channels)
    if isinstance(leaf, Codes):
        return np.dtype(np.int64), (-1, len(leaf.sizes))
    return np.dtype(np.float32), (-1, leaf.size)


def _output(spec: Spec, types: Any) -> Any:
    space = spec.action
    if isinstance(space, Continuous):
        return types.TensorSpec(np.dtype(np.float32), (-1, space.size))
    if isinstance(space, MultiDiscrete):
        return types.TensorSpec(np.dtype(np.int32), (-1, len(space.sizes)))
    named = isinstance(space, Discrete) and bool(space.names)
    return types.TensorSpec(np.dtype(str) if named else np.dtype(np.int32), (-1,))
