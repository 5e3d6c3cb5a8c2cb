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
from tidelog.errors import SpecError, import_extra
from tidelog.runtime.artefact import Saved
from tidelog.runtime.observations import column_names
from tidelog.runtime.way_of_acting import Acts, verdict_line
from tidelog.types import Catalogue, Codes, Image, Spec

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
    pyfunc, models = import_extra("mlflow.pyfunc", "mlflow"), import_extra("mlflow.models", "mlflow")
    if isinstance(policy.spec.action, Catalogue) or policy.is_recurrent:
        raise SpecError(
            "an MLflow model answers row by row, and this policy reads histories", fix="use `tidelog serve`"
        )
    examples = _examples(policy.spec)
    settings.setdefault("signature", models.infer_signature(examples, np.asarray(policy(examples))))
    settings.setdefault("input_example", examples if isinstance(examples, dict) else examples[:1])
    if "conda_env" not in settings:
        settings.setdefault("pip_requirements", [f"tidelog=={metadata.version('tidelog')}"])
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
    return import_extra("mlflow.models", "mlflow").Model.log(
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

    artifacts = import_extra("mlflow.artifacts", "mlflow")
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
        raise SpecError("this policy ranks items, and an MLflow model of tidelog acts", fix="use `tidelog serve`")
    return PolicyModel(policy)


def _examples(spec: Spec) -> Any:
    """Return two observations, from which MLflow infers the signature; a value that may be missing is so in the second.

    A data frame where the log named every column: numbers are 0.0, words the first of the log. Else arrays [2, ...].
    """
    columns: dict[str, list[Any]] = {}
    arrays: dict[str, Any] = {}
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Image):
            arrays[name] = np.zeros((2, leaf.height, leaf.width, leaf.channels), np.uint8)
        elif isinstance(leaf, Codes):
            arrays[name] = np.zeros((2, len(leaf.sizes)), np.int64)
            words: list[Any] = [labels[0] for labels in leaf.vocabularies] or [0.0] * len(leaf.names)
            columns |= {column: [word, word] for column, word in zip(leaf.names, words, strict=True)}
        else:
            arrays[name] = np.zeros((2, leaf.size), np.float32)
            missing = dict(leaf.fills)
            columns |= {column: [0.0, np.nan if column in missing else 0.0] for column in column_names(leaf)}
    if all(getattr(leaf, "names", ()) for leaf in spec.observation.values()):
        return import_extra("pandas", "mlflow").DataFrame(columns)
    return arrays if len(arrays) > 1 else arrays.popitem()[1]
