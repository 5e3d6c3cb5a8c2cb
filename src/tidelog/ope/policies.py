"""Policies as the judge asks them: saved ones, estimators of scikit-learn, functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

from tidelog._text import three_digits
from tidelog.algorithms.part import PolicyPart, part_spec
from tidelog.data.export import feature_table
from tidelog.data.log import Log
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.ope.evidence import Floats, Target, atoms_of
from tidelog.policies.policy import Policy
from tidelog.policies.rollout import action_orders, leaf_translations
from tidelog.runtime.policy import Leaves, as_rows, likeness, replay, replay_actions, replay_log_probability
from tidelog.runtime.rule import Rule
from tidelog.types import Continuous, Discrete, Hybrid, MultiDiscrete, Spec, has_densities, same_choices

# A scikit-learn classifier or regressor as a policy: pipelines, searches and libraries with the same interface too.
#
# It acts by `predict`, or a classifier is sampled from `predict_proba`; a regressor is clipped at the bounds of the
# log's actions. A forbidden action is never taken: probabilities are those of the allowed actions over their sum, and
# the likeliest of them takes its place.
#
# Letters: `B` rows, `C` classes, `A` number of actions or action size.

LeafArrays = Mapping[str, NDArray[Any]]
Mask = NDArray[np.bool_] | None
MOST_LISTED = 8  # names in an error
FIT = "fit it on log.features() and log.action"


def is_estimator(source: Any) -> bool:
    """Whether this is an estimator of scikit-learn's kind."""
    return not isinstance(source, type) and all(callable(getattr(source, name, None)) for name in ("fit", "predict"))


def estimator_name(estimator: Any) -> str:
    """The name of an estimator's class; of a pipeline with those of its steps."""
    name, steps = type(estimator).__name__, getattr(estimator, "steps", None)
    if not isinstance(steps, list):
        return name
    return f"{name}({', '.join(type(step).__name__ for _, step in steps if not isinstance(step, str | None))})"


class EstimatorPolicy:
    """A fitted estimator with the interface of a tidelog policy; SpecError if it does not fit the log."""

    is_recurrent = False
    acting = None  # nobody declared it

    def __init__(self, estimator: Any, spec: Spec) -> None:
        self._estimator, self.spec, self.origin = estimator, spec, dict[str, Any]()
        self.kind = estimator_name(estimator)
        classes, self.can_sample = getattr(estimator, "classes_", None), isinstance(spec.action, Discrete)
        if isinstance(spec.action, MultiDiscrete | Hybrid):
            raise SpecError(
                f"{self.kind}: an estimator supports one discrete action or continuous actions; this log has "
                f"{type(spec.action).__name__} actions",
                fix="judge one choice at a time",
            )
        if isinstance(spec.action, Continuous) and classes is not None:
            raise SpecError(f"{self.kind} is a classifier, and this log has Continuous actions", "a regressor", FIT)
        if self.can_sample and not callable(getattr(estimator, "predict_proba", None)):
            raise SpecError(
                f"{self.kind} has no predict_proba",
                "a classifier with probabilities",
                "wrap it in sklearn.calibration.CalibratedClassifierCV and fit that",
            )
        if self.can_sample and classes is None:
            raise SpecError(f"{self.kind} is not fitted", "a fitted classifier", FIT)
        if isinstance(spec.action, Discrete):
            self._classes = _action_of_classes(classes, spec.action, self.kind)
        known = feature_table(spec, {
            name: np.zeros((0, getattr(leaf, "size", None) or len(getattr(leaf, "sizes", (0,)))), np.int64)
            for name, leaf in spec.observation.items()
        }).columns  # fmt: skip
        names = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
        unnamed = names == [f"Column_{number}" for number in range(len(names))]  # LightGBM's, and []
        count, absent = getattr(estimator, "n_features_in_", None), [name for name in names if name not in known]
        if absent and not unnamed:
            raise SpecError(
                f"{self.kind} was fitted on the column '{absent[0]}' ({len(absent)} missing), which this log's "
                f"observation does not have: {nearest(absent[0], known)}",
                fix="fit it on log.features()",
            )
        if unnamed and count is not None and count != len(known):
            raise SpecError(
                f"{self.kind} was fitted on {count} columns, this log's observation has {len(known)}: {_listed(known)}",
                fix="fit it on log.features()",
            )
        self._names = None if unnamed else names

    def probabilities(self, leaves: LeafArrays, mask: Mask = None, state: Any = None) -> Floats:
        """Probabilities [B, A] of the sampled policy; SpecError if an allowed action has none."""
        chances = self._chances(leaves)
        chances = chances if mask is None else np.where(mask, chances, 0.0)
        sums = chances.sum(axis=1, keepdims=True)
        if not sums.all():
            raise SpecError(
                f"{self.kind} gives no probability to any allowed action in {int((sums == 0).sum()):,} rows",
                "an allowed action among its classes",
                "fit it on rows with these actions, or pass an object with probabilities(observation, mask) "
                "that says what it does there",
            )
        return np.asarray(chances / sums)

    def act(
        self, leaves: LeafArrays, seed: None = None, mask: Mask = None, state: Any = None
    ) -> tuple[NDArray[Any], None]:
        """Predicted actions, codes [B] or numbers [B, A], without propensities."""
        space, action = self.spec.action, self._predicted(leaves)
        if isinstance(space, Continuous):
            return np.clip(action, space.low, space.high).astype(np.float32), None
        allowed = True if mask is None else mask[np.arange(len(action)), action]
        if not np.all(allowed):
            action = np.where(allowed, action, self.probabilities(leaves, mask).argmax(axis=1))
        return action, None

    def log_probability(self, leaves: LeafArrays, action: Any, mask: Mask = None, state: Any = None) -> None:
        """None: a regressor has no density."""

    def notes(self, leaves: LeafArrays, mask: Mask, sample: bool) -> list[str]:
        """How the judged policy differs from the estimator's own predictions at these decisions."""
        space = self.spec.action
        if isinstance(space, Continuous):
            predicted = self._predicted(leaves)
            beyond = ~np.isclose(predicted, np.clip(predicted, space.low, space.high), rtol=1e-6)
            lost = float(beyond.any(axis=1).mean())
            what = f"predicts actions outside the bounds of the log's actions in {lost:.1%} of decisions"
            note = f"{self.kind} {what}: it is judged as a policy that clips its actions at these bounds"
            return [note] if lost else []
        if mask is None:
            return []
        chances = self._chances(leaves) if sample else np.eye(mask.shape[1])[self._predicted(leaves)]
        lost = float(np.where(mask, 0.0, chances).sum(axis=1).mean())
        what = f"gives {lost:.1%} of its probability to actions that are not allowed"
        if not sample:
            what = f"predicts an action that is not allowed in {lost:.1%} of decisions"
        return [f"{self.kind} {what}: it is judged as a policy that takes allowed actions alone"] if lost else []

    def _predicted(self, leaves: LeafArrays) -> NDArray[Any]:
        """Predictions: codes of actions [B], or numbers [B, A]; SpecError for others."""
        answers, space, rows = self._call("predict", leaves), self.spec.action, len(next(iter(leaves.values())))
        if isinstance(space, Continuous):
            numbers = answers[:, None] if answers.ndim == 1 else answers
            if numbers.shape != (rows, space.size) or numbers.dtype.kind not in "fiu" or not np.isfinite(numbers).all():
                raise SpecError(
                    f"{self.kind}.predict returned shape {answers.shape}",
                    f"finite numbers [rows, actions] = {(rows, space.size)}",
                    FIT,
                )
            return np.asarray(numbers, np.float64)
        codes = dict(zip(self._estimator.classes_.tolist(), self._classes.tolist(), strict=True))
        if answers.shape != (rows,) or not set(answers.tolist()) <= set(codes):
            raise SpecError(f"{self.kind}.predict returned values that are not in its classes_", fix=FIT)
        return np.array([codes[one] for one in answers.tolist()], np.int64)

    def _chances(self, leaves: LeafArrays) -> Floats:
        """Its probabilities [B, A], 0 for actions that are none of its classes; SpecError for others."""
        chances, rows = self._call("predict_proba", leaves), len(next(iter(leaves.values())))
        expected = (rows, len(self._classes))
        if chances.shape != expected or chances.dtype.kind not in "fiu":
            raise SpecError(
                f"{self.kind}.predict_proba returned shape {chances.shape}",
                f"numbers [rows, classes] = {expected}",
                "use a classifier of one output",
            )
        if not ((chances >= 0).all() and np.allclose(chances.sum(axis=1), 1.0, atol=1e-3)):
            raise SpecError(
                f"{self.kind}.predict_proba returned no probabilities",
                "numbers of at least 0 that add up to 1 in each row",
                "correct predict_proba",
            )
        everything = np.zeros((rows, cast("Discrete", self.spec.action).n))
        everything[:, self._classes] = chances
        return everything

    def _call(self, method: str, leaves: LeafArrays) -> NDArray[Any]:
        """The result of a method on a frame of polars if it was fitted on named columns, else an array; SpecError."""
        frame = feature_table(self.spec, leaves)
        if self._names is not None:
            rows: Any = frame.select(self._names)
        else:  # as float64, or as objects if there is text
            columns = [column.to_numpy() for column in frame]
            kind = object if any(values.dtype.kind == "O" for values in columns) else np.float64
            rows = np.column_stack([values.astype(kind) for values in columns])
        try:
            return np.asarray(getattr(self._estimator, method)(rows))
        except Exception as error:  # of foreign code
            raise SpecError(f"{self.kind}.{method} failed with {type(error).__name__}: {error}", fix=FIT) from error


def _action_of_classes(classes: Any, space: Discrete, kind: str) -> NDArray[np.int64]:
    """[C]: the action of each class, by its label or its code; SpecError if there is none."""
    if isinstance(classes, list) or np.ndim(classes) != 1:
        raise SpecError(f"{kind} has several outputs", "one class for each action", FIT)
    labels, codes = np.asarray(classes).tolist(), {label: code for code, label in enumerate(space.names)}
    named: list[int | None] = []
    coded: list[int | None] = []
    for one in labels:
        whole = isinstance(one, bool | int | float) and one == int(one)
        text = str(one).lower() if isinstance(one, bool) else str(int(one)) if whole else str(one)
        named.append(codes.get(str(one), codes.get(text)))
        coded.append(int(one) if whole and 0 <= one < space.n else None)
    if None not in named and None not in coded and named != coded:
        raise SpecError(
            f"{kind}: the classes {_listed(labels)} can be codes or labels of this log's actions "
            f"{_listed(space.names)}",
            "one of them",
            "fit it on the labels as text",
        )
    actions = coded if None in named else named
    if None in actions or len(set(actions)) < len(actions):
        unknown = [one for one, *either in zip(labels, named, coded, strict=True) if either == [None, None]] or labels
        expected = f"the labels {_listed(space.names)}, or codes" if space.names else "codes"
        raise SpecError(
            f"{kind} has the classes {_listed(unknown)}, which are no actions of this log",
            f"{expected} from 0 to {space.n - 1}",
            FIT,
        )
    return np.asarray(actions, np.int64)


def _listed(values: Sequence[Any]) -> str:
    more = f", ... ({len(values):,})" if len(values) > MOST_LISTED else ""
    return ", ".join(repr(value) for value in values[:MOST_LISTED]) + more


# The judged policy on a log: its actions at every stored observation, and its probabilities of the logged actions.
#
# Discrete actions have probabilities: those of the sampled policy, or 1 for the deterministic action. Masks apply, and
# a recurrent policy replays each episode with its observations.
#
# Continuous actions have densities. With `sample`, the policy's own density if it has one: that of the unclipped
# Gaussian, although executed samples are clipped at the bounds. A deterministic action has no density; with a
# `bandwidth` it is the mean of small noise, normal with that standard deviation (as a share of half of each dimension's
# range), truncated at the bounds and renormalised, which is a policy of its own (kernel smoothing as in Kallus and Zhou
# 2018, "Policy Evaluation and Optimization with Continuous Treatments"). Its value differs from the deterministic
# policy's; a smaller bandwidth differs less and has fewer logged actions nearby. Without a bandwidth the density of
# every logged action is 0: the log has no information about the policy. Atoms of the log have no density:
# a sampled policy never takes them, and a deterministic one that takes exactly an atom gets no noise there.
#
# Several choices at once, and actions with parts, have the product of the probabilities and densities of their parts.
# With a continuous part only a sampled policy has it, because there is no kernel for parts. No model of the behaviour
# policy supports these actions: propensities must be recorded.
#
# Any object with probabilities of discrete actions is a policy too (`ExternalPolicy`), and so is a fitted estimator of
# scikit-learn (`EstimatorPolicy`).
#
# Letters: `N` steps, `M` stored observations, `B` batch, `A` number of actions or action size, `K` draws.

TINY = 1e-12  # divisor of the probabilities of a part that decides nothing
DRAWS = 8  # sampled actions that represent a continuous action distribution


def target_of(
    policy: Policy, log: Log, *, sample: bool = False, bandwidth: float | None = None, seed: int = 0
) -> Target:
    """The policy on the log, of a part the whole and where it decides; SpecError for other observations or actions."""
    if isinstance(log.spec.action, Discrete) and isinstance(getattr(policy, "algorithm", None), PolicyPart):
        mask = None if log.action_mask is None else np.pad(log.action_mask, ((0, 0), (0, 1)), constant_values=True)
        actions = log.spec.action.n
        if len(getattr(policy.spec.action, "names", ())) == actions + 1:
            log = replace(log, spec=part_spec(log.spec), action_mask=mask)
        chances = np.asarray(_probabilities(policy, log, _translated(policy, log), stored_starts(log), sample))
        follows = 1.0 - chances[:, actions]
        own = np.where(follows[:, None] > 0.0, chances[:, :actions] / np.maximum(follows, TINY)[:, None], 1.0 / actions)
        return Target(own[np.asarray(log.position), np.asarray(log.action)], own, follows=follows)
    leaves, starts = _translated(policy, log), stored_starts(log)
    space = log.spec.action
    if isinstance(space, Discrete):
        probabilities = _probabilities(policy, log, leaves, starts, sample)
        return Target(probabilities[np.asarray(log.position), np.asarray(log.action)], probabilities)
    here = {name: leaf[log.position] for name, leaf in leaves.items()}
    if isinstance(space, MultiDiscrete | Hybrid):
        if not sample:  # the probability of the most likely action, which with a continuous number has no density
            most_likely = replay_actions(policy, leaves, starts)
            same = (most_likely[np.asarray(log.position)] == np.asarray(log.action)).all(axis=1)
            logged = np.zeros(log.steps) if has_densities(space) else same.astype(np.float64)
            return Target(logged, actions=most_likely.astype(np.float32)[:, None])
        likely = replay_log_probability(policy, here, np.asarray(log.action), log.starts)
        if likely is None and not has_densities(space):
            raise SpecError(
                "the policy makes several simultaneous choices and has no probabilities for them",
                fix="judge a policy with probabilities, or one choice at a time",
            )
        drawn = _drawn(policy, leaves, starts, seed)
        return Target(np.zeros(log.steps) if likely is None else np.exp(likely.astype(np.float64)), actions=drawn)
    bounds, likely = common_bounds(policy.spec.action, space), None
    if sample:
        likely = replay_log_probability(policy, here, np.asarray(log.action), log.starts)
    if likely is not None:
        drawn, atoms, density = _drawn(policy, leaves, starts, seed), atoms_of(log), np.exp(likely.astype(np.float64))
        if atoms is not None:
            density[atoms.lie_on(np.asarray(log.action)).any(axis=1)] = 0.0
        return Target(density, actions=drawn)
    chosen = replay_actions(policy, leaves, starts)
    if sample and np.ptp(_drawn(policy, leaves, starts, seed), axis=1).any():
        raise SpecError(
            "the policy draws its actions and has no density for them",
            "a policy with a density, or its action without noise",
            "judge that one: sample=False (--mode)",
        )
    return with_kernel(chosen, log, bounds, bandwidth, seed)


def stored_starts(log: Log) -> NDArray[np.int64]:
    """[E + 1]: index of each episode's first stored observation, then M."""
    count = len(next(iter(log.observation.values())))
    return np.append(np.asarray(log.position)[log.starts[:-1]], count).astype(np.int64)


def common_bounds(one: Any, two: Any) -> Continuous:
    """Bounds that include both spaces; observed bounds of one log may be narrower than another's."""
    low = tuple(map(float, np.minimum(one.low, two.low)))
    return Continuous(low, tuple(map(float, np.maximum(one.high, two.high))))


def with_kernel(chosen: NDArray[Any], log: Log, bounds: Continuous, bandwidth: float | None, seed: int) -> Target:
    """Deterministic actions [M, A] with small noise around them, or unchanged without a bandwidth."""
    if bandwidth is None:
        return Target(np.zeros(log.steps), actions=np.asarray(chosen, np.float32)[:, None])
    if isinstance(bandwidth, bool) or not 0.0 < bandwidth < np.inf:
        raise ConfigError(
            f"bandwidth = {bandwidth!r}", "a number above 0, a share of half the action's range", "use 0.2"
        )
    action, there = np.asarray(log.action), chosen[np.asarray(log.position)]
    drawn = kernel_draws(chosen, bounds, bandwidth, DRAWS, seed)
    density, atoms = kernel_density(action, there, bounds, bandwidth), atoms_of(log)
    if atoms is not None:
        on, free = atoms.lie_on(chosen), np.greater(bounds.high, bounds.low)
        drawn = np.where(on[:, None], np.asarray(chosen, np.float32)[:, None], drawn)
        some, whole = (np.asarray(one)[np.asarray(log.position)] for one in (on.any(axis=1), (on | ~free).all(axis=1)))
        same = (action == there.astype(action.dtype)).all(axis=1)
        off = ~atoms.lie_on(action).any(axis=1)
        density = np.where(whole, same, np.where(some, 0.0, np.where(off, density, 0.0)))
    return Target(density, None, drawn, bandwidth)


def kernel_density(action: NDArray[Any], middle: NDArray[Any], bounds: Continuous, bandwidth: float) -> Floats:
    """Densities [N], in the actions' own units, of actions under truncated normals with these centres: both [N, A].

    Dimensions with equal bounds are constant and do not count; outside the bounds the density is 0.
    """
    free = np.greater(bounds.high, bounds.low)
    u, centre = (np.asarray(bounds.to_unit(x), np.float64)[:, free] for x in (action, middle))
    below, above = ndtr((-1.0 - centre) / bandwidth), ndtr((1.0 - centre) / bandwidth)
    normal = np.exp(-0.5 * np.square((u - centre) / bandwidth)) / (bandwidth * np.sqrt(2.0 * np.pi))
    inside = np.abs(u) <= 1.0 + 1e-6
    return np.asarray(np.where(inside, normal / (above - below), 0.0).prod(1) * np.exp(-bounds.log_volume()))


def kernel_draws(
    middle: NDArray[Any], bounds: Continuous, bandwidth: float, count: int, seed: int
) -> NDArray[np.float32]:
    """Actions [M, K, A] sampled from truncated normals with centres [M, A], one from each K-th of the mass."""
    centre = np.asarray(bounds.to_unit(middle), np.float64)[:, None]
    below, above = ndtr((-1.0 - centre) / bandwidth), ndtr((1.0 - centre) / bandwidth)
    generator = np.random.default_rng([seed, 3])
    shape = (len(centre), count, centre.shape[-1])
    strata = generator.permuted(np.broadcast_to(np.arange(count)[:, None], shape), axis=1)
    share = (strata + generator.random(shape)) / count
    u = np.clip(centre + bandwidth * ndtri(below + share * (above - below)), -1.0, 1.0)
    return np.asarray(bounds.from_unit(u), np.float32)


def _probabilities(policy: Policy, log: Log, leaves: Leaves, starts: Any, sample: bool) -> Floats:
    """[M, A] in the log's order of actions; those of a sampled feed-forward policy are uniform at an episode's end."""
    to_policy, to_log = action_orders(policy.spec, log.spec, "this log")
    mask = None if log.action_mask is None else np.asarray(log.action_mask)
    allowed = mask if mask is None or to_log is None else mask[:, to_log]
    actions = cast("Discrete", policy.spec.action).n
    if sample and policy.is_recurrent:
        answers = replay(policy, leaves, starts, allowed, lambda seen, may, _, m: policy.probabilities(seen, may, m))
        probabilities = _normalised(cast("NDArray[Any]", answers))
    elif sample:  # computed only at decisions, because nothing reads the others
        count = len(next(iter(leaves.values())))
        decisions = np.zeros(count, bool)
        decisions[log.position] = True
        may = np.ones((count, actions), bool) if allowed is None else allowed
        probabilities = np.asarray(may / np.maximum(may.sum(1, keepdims=True), 1))
        seen = {name: leaf[decisions] for name, leaf in leaves.items()}
        chances = policy.probabilities(seen, None if allowed is None else allowed[decisions])
        probabilities[decisions] = _normalised(chances)
    else:
        probabilities = np.eye(actions)[replay_actions(policy, leaves, starts, allowed)]
    return probabilities if to_policy is None else probabilities[:, to_policy]


def _normalised(probabilities: NDArray[Any]) -> Floats:
    """As float64 with rows that sum to 1; float32 rows do so only up to rounding."""
    probabilities = np.asarray(probabilities, np.float64)
    return np.asarray(probabilities / probabilities.sum(1, keepdims=True))


def _drawn(policy: Policy, leaves: Leaves, starts: Any, seed: int) -> NDArray[np.float32]:
    """Sampled actions [M, K, A]."""
    generator = np.random.default_rng([seed, 4])

    def ask(seen: Any, allowed: Any, rows: Any, state: Any) -> NDArray[Any]:
        before = None if state is None else state.of(slice(None))
        seeds = generator.integers(2**31, size=DRAWS)
        several = [policy.act(seen, int(one), allowed, before and before.of(slice(None)))[0] for one in seeds]
        return np.stack([as_rows(policy.spec.action, one) for one in several], axis=1)

    return np.asarray(replay(policy, leaves, starts, None, ask), np.float32)


def _translated(policy: Policy, log: Log) -> Leaves:
    """The log's stored observations in the form of the policy's spec."""
    one, two = policy.spec.action, log.spec.action
    if isinstance(one, Continuous) and isinstance(two, Continuous):
        named = bool(one.names and two.names)
        if one.size != two.size or (named and one.names != two.names):
            raise SpecError(
                f"this log's actions are {two.names or two.size}, the policy's are {one.names or one.size}",
                fix="judge it on a log with the same actions, in the same order",
            )
    elif isinstance(one, MultiDiscrete | Hybrid) or isinstance(two, MultiDiscrete | Hybrid):
        if not same_choices(one, two):
            raise SpecError(f"this log's actions are {two}, the policy's are {one}", "the same")
    else:
        action_orders(policy.spec, log.spec, "this log")
    shown = leaf_translations(policy.spec, log.spec, "this log")
    return {name: translate(np.asarray(log.observation[name])) for name, translate in shown.items()}


class ExternalPolicy:
    """Any object with `probabilities(observation, mask)` [B, A], by which it is judged, as a tidelog policy."""

    is_recurrent = False

    def __init__(self, tells: Any, spec: Spec) -> None:
        if not isinstance(spec.action, Discrete):
            raise SpecError(
                f"an external policy supports only discrete actions; this log has {type(spec.action).__name__} actions"
            )
        self._tells, self.spec, self.origin = tells, spec, dict[str, Any]()
        self.actions, self.kind = spec.action.n, type(tells).__name__

    def probabilities(self, leaves: LeafArrays, mask: Mask = None, state: Any = None) -> Floats:
        """The external policy's probabilities [B, A]; SpecError if they are invalid."""
        chances = np.asarray(self._tells.probabilities(leaves, mask), np.float64)
        expected = (len(next(iter(leaves.values()))), self.actions)
        if chances.shape != expected:
            raise SpecError(f"the policy's probabilities have shape {chances.shape}", f"[rows, actions] = {expected}")
        sums = chances.sum(axis=1)
        if not (chances >= 0).all() or not np.allclose(sums, 1.0, atol=1e-3):
            row = int(np.flatnonzero(~((chances >= 0).all(axis=1) & np.isclose(sums, 1.0, atol=1e-3)))[0])
            raise SpecError(
                f"the policy's probabilities in row {row} are {chances[row]}", "numbers of at least 0 that add up to 1"
            )
        return chances

    def act(
        self, leaves: LeafArrays, seed: None = None, mask: Mask = None, state: Any = None
    ) -> tuple[NDArray[Any], None]:
        """The most likely actions [B], without propensities."""
        return np.asarray(self.probabilities(leaves, mask).argmax(axis=1)), None


def as_policy(policy: Any, spec: Spec) -> Any:
    """The policy itself, or an external policy or an estimator with its interface; SpecError if it is none of these."""
    if isinstance(policy, Policy | Rule):
        return policy
    if not isinstance(policy, type) and callable(getattr(policy, "probabilities", None)):
        return ExternalPolicy(policy, spec)
    if is_estimator(policy):
        return EstimatorPolicy(policy, spec)
    raise SpecError(
        f"expected a policy, found {policy.__name__ if isinstance(policy, type) else type(policy).__name__}",
        fix="pass run.policy(), tl.load_policy(...), an object with probabilities(observation, mask), or a fitted "
        "scikit-learn estimator",
    )


def is_sampled(policy: Any, sample: bool | None) -> bool:
    """Return whether the sampled policy is evaluated; None: as declared. An external policy always is, a rule never."""
    if isinstance(policy, ExternalPolicy | Rule):
        return isinstance(policy, ExternalPolicy)
    return bool(policy.acting == "sample" if sample is None else sample)


def check_fit(policy: Any, log: Log) -> None:
    """Raise SpecError if the policy's observations or actions differ from the log's; checks the first episode."""
    target_of(policy, log.take_episodes([0]))


# How well policies imitate logged decisions: all that a log without rewards can show.
#
# Letters: `N` steps, `E` episodes.

IMITATION_LEVEL = 0.95


class Imitation(NamedTuple):
    """A policy's most likely actions, and one constant action, compared with the logged ones."""

    policy: NDArray[Any]  # [N]: as `likeness` of its actions
    constant: NDArray[Any]  # [N]: the same for the most common action, or the mean of continuous ones
    constant_name: str
    is_distance: bool
    starts: NDArray[Any]  # [E + 1]: first rows of the episodes, and N

    @classmethod
    def of(cls, log: Log, actions: NDArray[Any], starts: NDArray[Any]) -> Imitation:
        """Compare actions [N, ...] with those of the first N rows of a log, whose episodes begin at `starts`.

        The constant action is that of these rows themselves, which favours it.
        """
        logged, space = np.asarray(log.action[: starts[-1]]), log.spec.action
        if isinstance(space, Continuous):
            constant, name = logged.mean(axis=0), "the mean action"
        elif has_densities(space):
            codes = cast("Hybrid", space).codes
            often = [np.bincount(column.astype(np.int64)).argmax() if n else column.mean()
                     for column, n in zip(logged.T, codes, strict=True)]  # fmt: skip
            constant, name = np.asarray(often), "the most common choices with the mean numbers"
        else:
            different, counts = np.unique(logged, axis=0, return_counts=True)
            constant = different[counts.argmax()]
            label = space.names[int(constant)] if isinstance(space, Discrete) and space.names else constant
            name = f"the most common action ({label})"
        always = likeness(space, np.broadcast_to(constant, logged.shape).astype(np.float64), logged)
        own = likeness(space, actions.astype(np.float64), logged)
        return cls(own, always, name, has_densities(space), starts)

    @property
    def difference(self) -> tuple[float, float, float]:
        """Mean over steps of the policy's likeness minus the constant's, and its 95% interval.

        The interval is Student's t over episodes, whose steps are not independent; no number for one episode.
        """
        more, lengths = self.policy - self.constant, np.diff(self.starts)
        mean, count = float(more.mean()), len(lengths)
        if count < 2:
            return mean, np.nan, np.nan
        apart = np.add.reduceat(more, self.starts[:-1]) - mean * lengths
        error = np.sqrt(count / (count - 1) * np.square(apart).sum()) / lengths.sum()
        half = float(stdtrit(count - 1, (1.0 + IMITATION_LEVEL) / 2.0) * error)
        return mean, mean - half, mean + half

    @property
    def sentence(self) -> str:
        """What the policy predicts, beside the constant action; the name of the policy comes before it."""
        scale, unit = (1.0, "") if self.is_distance else (100.0, " points")
        mean, low, high = (three_digits(scale * one, sign=True) for one in self.difference)
        ends = "" if np.isnan(self.difference[1]) else f" ({IMITATION_LEVEL:.0%} interval {low} to {high})"
        own, always = float(self.policy.mean()), float(self.constant.mean())
        if self.is_distance:
            compared = f"has a mean distance to the logged actions of {three_digits(own)}"
            beside = f"{self.constant_name} one of {three_digits(always)}"
        else:
            compared = f"chooses the logged action at {own:.1%} of the steps"
            beside = f"{self.constant_name} is right at {always:.1%}"
        return f"{compared}, {beside}: a difference of {mean}{unit}{ends}"


def imitation_of(policy: Any, log: Log) -> Imitation:
    """Compare a policy's most likely actions with the logged ones at all steps of a log."""
    rows = log.transitions
    actions = replay_actions(policy, rows.observation, log.starts, rows.mask)
    return Imitation.of(log, actions, log.starts)
