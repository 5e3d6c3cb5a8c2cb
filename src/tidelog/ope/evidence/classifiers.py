"""Models of the logger by scikit-learn: boosted trees, or any classifier with `predict_proba`.

Trees often predict a table of words and numbers better than a network does: Friedman 2001, "Greedy Function
Approximation: A Gradient Boosting Machine". The trees are scikit-learn's `HistGradientBoostingClassifier`, with the
number of rounds that gives held-out actions the largest likelihood.

Letters: `M` stored observations, `I` numbers in an observation, `A` number of actions.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.errors import ConfigError, SpecError, install
from tidelog.ope.evidence.episodes import Ordinals, observed_numbers
from tidelog.ope.evidence.evidence import Floats
from tidelog.threads import one_thread
from tidelog.types import Codes, Image

TREES, BEST = "trees", "best"
ROUNDS = 200  # of boosting, at most
MOST_WORDS = 255  # of a column that trees split by its words; a larger vocabulary is read as numbers
SMALLEST = 1e-6  # of estimated probabilities


def is_classifier(source: Any) -> bool:
    """Whether this is a classifier of scikit-learn's kind."""
    return callable(getattr(source, "predict_proba", None)) and callable(getattr(source, "fit", None))


def check_classifier(source: Any) -> None:
    """Raise ConfigError if scikit-learn, which fits or copies the classifier, is not installed."""
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        what = f"propensities = '{source}'" if isinstance(source, str) else "a classifier for the propensities"
        raise ConfigError(f"{what} needs scikit-learn. fix: {install('trees')}") from error


def log_chances(source: Any, log: Log, learnt: Ordinals, held: Ordinals | None, seed: int) -> NDArray[np.float64]:
    """Logarithms [M, A] of the chances of actions at all stored observations, fitted on the steps of `learnt` episodes.

    `source`: "trees", or an unfitted classifier, which is copied. `held` are other episodes, for the number of rounds.
    """
    own = not isinstance(source, str)
    numbers, words = (observed_numbers(log, learnt).astype(np.float64), []) if own else _columns(log)
    position, action, episode = np.asarray(log.position), np.asarray(log.action), np.asarray(log.episode)
    rows = np.isin(episode, learnt)
    seen, taken = numbers[position[rows]], action[rows]
    if len(np.unique(taken)) == 1:
        return _spread(np.ones((len(numbers), 1)), taken[:1], log.spec.action.n)  # type: ignore[union-attr]
    if own:
        model = _copy(source, seed)
        chances = _fitted(model, seen, taken, numbers)
    else:
        with one_thread("openmp"):  # folds run in threads; threads of theirs would wait for one another
            model = _trees(words, seed).fit(seen, taken)
            stage = ROUNDS if held is None else _best_stage(model, numbers[position], action, np.isin(episode, held))
            chances = next(islice(model.staged_predict_proba(numbers), stage - 1, None))
    return _spread(chances, np.asarray(model.classes_), log.spec.action.n)  # type: ignore[union-attr]


def _columns(log: Log) -> tuple[NDArray[np.float64], list[int]]:
    """Observations as numbers [M, I], and the columns of words among them."""
    parts, words, width = [], [], 0
    for name, leaf in sorted(log.observation.items()):
        kind = log.spec.observation[name]
        if isinstance(kind, Image):
            raise SpecError(
                f"propensities = '{TREES}': observation '{name}' is a picture, expected columns of a table. fix: use "
                "propensities='estimated', which fits a network"
            )
        values = np.asarray(leaf, np.float64).reshape(len(leaf), -1)
        if isinstance(kind, Codes):
            words += [width + place for place, size in enumerate(kind.sizes) if size <= MOST_WORDS]
        parts.append(values)
        width += values.shape[1]
    return np.concatenate(parts, axis=1), words


def _trees(words: list[int], seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=ROUNDS, categorical_features=words or None, early_stopping=False, random_state=seed
    )


def _best_stage(model: Any, numbers: Floats, action: NDArray[Any], held: NDArray[np.bool_]) -> int:
    """The number of rounds with the largest likelihood of the held actions."""
    place = {int(one): column for column, one in enumerate(model.classes_)}
    known = held & np.isin(action, model.classes_)
    if not known.any():
        return ROUNDS
    of = np.array([place[int(one)] for one in action[known]])
    losses = [
        -float(np.log(np.maximum(chances[np.arange(len(of)), of], SMALLEST)).mean())
        for chances in model.staged_predict_proba(numbers[known])
    ]
    return int(np.argmin(losses)) + 1


def _copy(source: Any, seed: int) -> Any:
    """An unfitted copy of a classifier, with this seed wherever it has one."""
    from sklearn.base import clone

    try:
        copied = clone(source)
        seeds = [name for name in copied.get_params() if name.split("__")[-1] == "random_state"]  # of steps too
        return copied.set_params(**dict.fromkeys(seeds, seed)) if seeds else copied
    except (TypeError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"propensities: {type(source).__name__} cannot be copied for each fold: {error}. fix: use a classifier "
            "with scikit-learn's get_params and set_params"
        ) from error


def _fitted(model: Any, seen: Floats, taken: NDArray[Any], numbers: Floats) -> Floats:
    """Probabilities [M, C] of the classes that the model has; ConfigError if it fails or they are none."""
    name = type(model).__name__
    try:
        model.fit(seen, taken)
        chances = np.asarray(model.predict_proba(numbers), np.float64)
        classes = np.asarray(model.classes_)
    except Exception as error:  # of foreign code
        raise ConfigError(f"propensities: {name} failed with {type(error).__name__}: {error}") from error
    sums = chances.sum(axis=-1) if chances.ndim == 2 else np.zeros(1)
    if chances.shape != (len(numbers), len(classes)) or not ((chances >= 0).all() and np.allclose(sums, 1.0)):
        raise ConfigError(
            f"propensities: {name}.predict_proba returned an array of shape {chances.shape} that holds no "
            f"probabilities: expected {len(numbers):,} rows over {len(classes)} classes, each with the sum 1"
        )
    return chances


def _spread(chances: Floats, classes: NDArray[Any], actions: int) -> Floats:
    """Logarithms [M, A] of probabilities [M, C] of some actions; the others have the smallest probability."""
    everything = np.full((len(chances), actions), SMALLEST)
    everything[:, classes.astype(int)] = np.maximum(chances, SMALLEST)
    return np.asarray(np.log(everything))
