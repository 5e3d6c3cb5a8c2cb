"""A scikit-learn classifier or regressor as a policy: pipelines, searches and libraries with the same interface too.

A classifier acts by `predict`, or is sampled from `predict_proba`; a regressor acts by `predict`, clipped at the bounds
of the log's actions. An action that is not allowed is never taken: the deterministic policy takes the allowed action
with the highest probability or score, the sampled one has the probabilities of the allowed actions over their sum.

Letters: `B` rows, `C` classes, `I` columns of the observation, `A` number of actions or action size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.features import feature_table
from tidelog.errors import SpecError, nearest
from tidelog.ope.evidence.evidence import Floats
from tidelog.types import Continuous, Discrete, MultiDiscrete, Spec

Leaves = Mapping[str, NDArray[Any]]
Mask = NDArray[np.bool_] | None
MOST_LISTED = 8  # names in an error
FIT = "fix: fit it on log.features() and log.action"
ONE_SIDED = "it is judged as a policy that takes allowed actions alone"


def is_estimator(source: Any) -> bool:
    """Whether this is a classifier or regressor of scikit-learn's kind."""
    return not isinstance(source, type) and all(callable(getattr(source, name, None)) for name in ("fit", "predict"))


def estimator_name(estimator: Any) -> str:
    """The name of an estimator's class; of a pipeline with those of its steps."""
    name, steps = type(estimator).__name__, getattr(estimator, "steps", None)
    if not isinstance(steps, list):
        return name
    return f"{name}({', '.join(type(step).__name__ for _, step in steps if not isinstance(step, str | None))})"


class EstimatorPolicy:
    """A fitted estimator with the interface of a tidelog policy."""

    is_recurrent = False
    acting = None  # nobody declared it

    def __init__(self, estimator: Any, spec: Spec) -> None:
        self._estimator, self.spec, self.origin = estimator, spec, dict[str, Any]()
        self.kind = estimator_name(estimator)
        if not _is_fitted(estimator):
            raise SpecError(f"{self.kind} is not fitted: expected a fitted estimator. {FIT}")
        self._places = _places(getattr(estimator, "classes_", None), spec, self.kind)
        self._names = _names(estimator, spec, self.kind)
        self.can_sample = isinstance(spec.action, Discrete) and callable(getattr(estimator, "predict_proba", None))

    def probabilities(self, leaves: Leaves, mask: Mask = None, memory: Any = None) -> Floats:
        """Probabilities [B, A] of the sampled policy; SpecError if an allowed action has none."""
        if not self.can_sample:
            raise SpecError(
                f"{self.kind} has no predict_proba, so its actions cannot be sampled. fix: judge it without "
                "sample=True, or wrap it in sklearn.calibration.CalibratedClassifierCV and fit that"
            )
        chances = self._scores("predict_proba", leaves, 0.0)
        chances = chances if mask is None else np.where(mask, chances, 0.0)
        sums = chances.sum(axis=1, keepdims=True)
        self._check_allowed(sums[:, 0] > 0)
        return np.asarray(chances / sums)

    def act(
        self, leaves: Leaves, seed: None = None, mask: Mask = None, memory: Any = None
    ) -> tuple[NDArray[Any], None]:
        """Predicted actions, codes [B] or numbers [B, A], without propensities."""
        space, predicted = self.spec.action, self._predicted(leaves)
        if isinstance(space, Continuous):
            return np.clip(predicted, space.low, space.high).astype(np.float32), None
        other = np.flatnonzero(_forbidden(predicted, mask))
        if mask is not None and len(other):
            there = {name: leaf[other] for name, leaf in leaves.items()}
            predicted[other] = self._best_allowed(there, mask[other])
        return predicted, None

    def log_probability(self, leaves: Leaves, action: Any, mask: Mask = None, memory: Any = None) -> None:
        """None: a regressor has no density."""

    def notes(self, leaves: Leaves, mask: Mask, sample: bool) -> list[str]:
        """How the judged policy differs from the estimator's own predictions at these decisions."""
        space = self.spec.action
        if isinstance(space, Continuous):
            predicted = self._predicted(leaves)
            clipped = np.clip(predicted, space.low, space.high)
            beyond = float((~np.isclose(predicted, clipped, rtol=1e-6)).any(axis=1).mean())
            if not beyond:
                return []
            return [
                f"{self.kind} predicts actions outside the bounds of the log's actions in {beyond:.1%} of decisions: "
                "it is judged as a policy that clips its actions at these bounds"
            ]
        if mask is None:
            return []
        if sample:
            lost = float(np.where(mask, 0.0, self._scores("predict_proba", leaves, 0.0)).sum(axis=1).mean())
            what = f"gives {lost:.1%} of its probability to actions that are not allowed"
        else:
            lost = float(_forbidden(self._predicted(leaves), mask).mean())
            what = f"predicts an action that is not allowed in {lost:.1%} of decisions"
        return [f"{self.kind} {what}: {ONE_SIDED}"] if lost else []

    def _predicted(self, leaves: Leaves) -> NDArray[Any]:
        """Predictions: codes of actions [B], or numbers [B, A]; SpecError for others."""
        answers, space = self._call("predict", leaves), self.spec.action
        rows = len(next(iter(leaves.values())))
        if isinstance(space, Continuous):
            numbers = answers[:, None] if answers.ndim == 1 else answers
            if numbers.shape != (rows, space.size) or numbers.dtype.kind not in "fiu":
                raise SpecError(
                    f"{self.kind}.predict returned shape {answers.shape}: expected numbers [rows, actions] = "
                    f"{(rows, space.size)}. {FIT}"
                )
            if not np.isfinite(numbers).all():
                raise SpecError(f"{self.kind}.predict returned numbers that are not finite. {FIT}")
            return np.asarray(numbers, np.float64)
        classes = np.asarray(self._estimator.classes_)
        order = np.argsort(classes)
        at = np.minimum(np.searchsorted(classes, answers, sorter=order), len(classes) - 1)
        known = answers.shape == (rows,) and bool((classes[order[at]] == answers).all())
        if not known:
            raise SpecError(f"{self.kind}.predict returned values that are not in its classes_. {FIT}")
        return self._places[order[at]]

    def _best_allowed(self, leaves: Leaves, mask: NDArray[np.bool_]) -> NDArray[Any]:
        """The allowed actions [B] with the highest probability or score."""
        if self.can_sample:
            return np.asarray(self.probabilities(leaves, mask).argmax(axis=1))
        if not callable(getattr(self._estimator, "decision_function", None)):
            raise SpecError(
                f"{self.kind} predicts an action that is not allowed in {len(mask):,} rows, and has no predict_proba "
                "and no decision_function that tell its next best action. fix: use a classifier with predict_proba"
            )
        scores = np.where(mask, self._scores("decision_function", leaves, -np.inf), -np.inf)
        self._check_allowed(np.asarray(np.isfinite(scores).any(axis=1)))
        return np.asarray(scores.argmax(axis=1))

    def _scores(self, method: str, leaves: Leaves, other: float) -> Floats:
        """Probabilities or scores [B, A]; `other` for actions that are none of the classes. SpecError for others."""
        scores, rows = self._call(method, leaves), len(next(iter(leaves.values())))
        if method == "decision_function" and scores.ndim == 1:
            scores = np.stack([-scores, scores], axis=1)
        expected = (rows, len(self._places))
        if scores.shape != expected or scores.dtype.kind not in "fiu":
            raise SpecError(
                f"{self.kind}.{method} returned shape {scores.shape}: expected numbers [rows, classes] = {expected}. "
                "fix: use a classifier of one output"
            )
        if method == "predict_proba" and not ((scores >= 0).all() and np.allclose(scores.sum(axis=1), 1.0, atol=1e-3)):
            raise SpecError(
                f"{self.kind}.predict_proba returned no probabilities: expected numbers of at least 0 that add up to 1 "
                "in each row. fix: judge it without sample=True, or correct predict_proba"
            )
        spread = np.full((rows, _count(self.spec)), other)
        spread[:, self._places] = scores
        return spread

    def _check_allowed(self, able: NDArray[np.bool_]) -> None:
        if not able.all():
            raise SpecError(
                f"{self.kind} gives no probability or score to any allowed action in {int((~able).sum()):,} rows: "
                "expected an allowed action among its classes. fix: fit it on rows with these actions, or pass an "
                "object with probabilities(observation, mask) that says what it does there"
            )

    def _call(self, method: str, leaves: Leaves) -> NDArray[Any]:
        """The result of a method of the estimator on these rows; SpecError if it fails.

        It is given a data frame if it was fitted on named columns: of polars, and of pandas where only that is read.
        """
        frame, call = feature_table(self.spec, leaves), getattr(self._estimator, method)
        try:
            try:
                return np.asarray(call(_array(frame) if self._names is None else frame.select(self._names)))
            except Exception:  # of foreign code
                if self._names is None or find_spec("pandas") is None:
                    raise
                import pandas as pd

                return np.asarray(call(pd.DataFrame({name: frame[name].to_numpy() for name in self._names})))
        except Exception as error:  # of foreign code
            raise SpecError(f"{self.kind}.{method} failed with {type(error).__name__}: {error}. {FIT}") from error


def _forbidden(action: NDArray[Any], mask: Mask) -> NDArray[np.bool_]:
    """Whether actions [B] are not allowed."""
    return np.zeros(len(action), bool) if mask is None else ~mask[np.arange(len(action)), action]


def _is_fitted(estimator: Any) -> bool:
    """Whether an estimator says that it is fitted, or has an attribute that ends as fitted ones do."""
    says = getattr(estimator, "__sklearn_is_fitted__", None)
    if callable(says):
        return bool(says())
    fitted = any(name.endswith("_") and not name.startswith("__") for name in getattr(estimator, "__dict__", ()))
    return fitted or hasattr(estimator, "classes_")


def _count(spec: Spec) -> int:
    return spec.action.n if isinstance(spec.action, Discrete) else 0


def _places(classes: Any, spec: Spec, kind: str) -> NDArray[np.int64]:
    """[C]: the action of each class, by its label or its code; none for a regressor. SpecError if there is none."""
    space = spec.action
    if isinstance(space, MultiDiscrete):
        raise SpecError(
            f"{kind}: an estimator supports one discrete action or continuous actions; this log has MultiDiscrete "
            "actions. fix: judge one choice at a time"
        )
    if isinstance(space, Continuous):
        if classes is not None:
            raise SpecError(
                f"{kind} is a classifier, and this log has Continuous actions: expected a regressor. fix: fit a "
                "regressor on log.features() and log.action"
            )
        return np.zeros(0, np.int64)
    if classes is None:
        raise SpecError(
            f"{kind} has no classes_, and this log has Discrete actions: expected a classifier. fix: fit a classifier "
            "on log.features() and log.action"
        )
    if isinstance(classes, list) or np.ndim(classes) != 1:
        raise SpecError(f"{kind} has several outputs: expected one class for each action. {FIT}")
    labels = np.asarray(classes).tolist()
    named, coded = _by_label(labels, space), _by_code(labels, space)
    if None not in named and None not in coded and named != coded:
        raise SpecError(
            f"{kind}: the classes {_listed(labels)} can be codes or labels of this log's actions "
            f"{_listed(space.names)}: expected one of them. fix: fit it on the labels as text"
        )
    found = coded if None in named else named
    if None in found or len(set(found)) < len(found):
        unknown = [one for one, *either in zip(labels, named, coded, strict=True) if either == [None, None]] or labels
        expected = f"the labels {_listed(space.names)}, or codes" if space.names else "codes"
        raise SpecError(
            f"{kind} has the classes {_listed(unknown)}, which are no actions of this log: expected {expected} from 0 "
            f"to {space.n - 1}. {FIT}"
        )
    return np.asarray(found, np.int64)


def _by_label(classes: Sequence[Any], space: Discrete) -> list[int | None]:
    """The action whose label each class is, as text; None if there is none."""
    labels = {label: place for place, label in enumerate(space.names)}
    texts = [[str(one), str(one).lower() if isinstance(one, bool) else _whole(one)] for one in classes]
    return [next((labels[text] for text in pair if text in labels), None) for pair in texts]


def _by_code(classes: Sequence[Any], space: Discrete) -> list[int | None]:
    """The action whose code each class is; None if there is none."""
    return [
        int(one) if isinstance(one, bool | int | float) and one == int(one) and 0 <= one < space.n else None
        for one in classes
    ]


def _whole(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _listed(values: Sequence[Any]) -> str:
    more = f", ... ({len(values):,})" if len(values) > MOST_LISTED else ""
    return ", ".join(repr(value) for value in values[:MOST_LISTED]) + more


def _names(estimator: Any, spec: Spec, kind: str) -> list[str] | None:
    """The columns that an estimator was fitted on, None if it knows only their number; SpecError if they differ."""
    known = feature_table(spec, _no_rows(spec)).columns
    names = getattr(estimator, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    if names is None or names == [f"Column_{place}" for place in range(len(names))]:  # LightGBM's names of unnamed ones
        count = getattr(estimator, "n_features_in_", None)
        if count is not None and count != len(known):
            raise SpecError(
                f"{kind} was fitted on {count} columns, this log's observation has {len(known)}: {_listed(known)}. "
                "fix: fit it on log.features()"
            )
        return None
    missing = [name for name in names if name not in known]
    if missing:
        raise SpecError(
            f"{kind} was fitted on the column '{missing[0]}' ({len(missing)} missing), which this log's observation "
            f"does not have: {nearest(missing[0], known)}. fix: fit it on log.features()"
        )
    return names


def _no_rows(spec: Spec) -> dict[str, NDArray[Any]]:
    """Leaves without a row."""
    return {
        name: np.zeros((0, getattr(leaf, "size", None) or len(getattr(leaf, "sizes", (0,)))), np.int64)
        for name, leaf in spec.observation.items()
    }


def _array(frame: Any) -> NDArray[Any]:
    """All columns [B, I] as float64, or as objects if there is text."""
    columns = [column.to_numpy() for column in frame]
    kind = object if any(values.dtype.kind == "O" for values in columns) else np.float64
    return np.column_stack([values.astype(kind) for values in columns])
