"""The judged policy on a log: its actions at every stored observation, and its probabilities of the logged actions.

Discrete actions have probabilities: those of the sampled policy, or 1 for the deterministic action. Masks apply, and a
recurrent policy replays each episode with its observations.

Continuous actions have densities. With `sample`, the policy's own density if it has one: that of the unclipped
Gaussian, although executed samples are clipped at the bounds. A deterministic action has no density; with a `bandwidth`
it is the mean of small noise, normal with that standard deviation (as a share of half of each dimension's range),
truncated at the bounds and renormalised, which is a policy of its own (kernel smoothing as in Kallus and Zhou 2018,
"Policy Evaluation and Optimization with Continuous Treatments"). Its value differs from the deterministic policy's; a
smaller bandwidth differs less and has fewer logged actions nearby. Without a bandwidth the density of every logged
action is 0: the log has no information about the policy. Atoms of the log (`atoms.py`) have no density: a sampled
policy never takes them, and a deterministic one that takes exactly an atom gets no noise there.

Any object with probabilities of discrete actions is a policy too (`ExternalPolicy`), and so is a fitted estimator of
scikit-learn (`EstimatorPolicy`).

Letters: `N` steps, `M` stored observations, `B` batch, `A` number of actions or action size, `K` draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tidelog.data.log import Log
from tidelog.errors import ConfigError, SpecError
from tidelog.ope.evidence.atoms import atoms_of
from tidelog.ope.evidence.estimator_policy import EstimatorPolicy, is_estimator
from tidelog.ope.evidence.evidence import Floats, Target
from tidelog.policies.action_mapping import action_orders, leaf_translations
from tidelog.policies.policy import Policy
from tidelog.runtime.replay import Leaves, replay, replay_actions, replay_log_probability
from tidelog.runtime.rule import Rule
from tidelog.types import Continuous, Discrete, MultiDiscrete, Spec

DRAWS = 8  # sampled actions that represent a continuous action distribution


def target_of(
    policy: Policy, log: Log, *, sample: bool = False, bandwidth: float | None = None, seed: int = 0
) -> Target:
    """The policy on the log; SpecError if its observations or actions differ from the log's."""
    leaves, starts = _translated(policy, log), stored_starts(log)
    space = log.spec.action
    if isinstance(space, Discrete):
        probabilities = _probabilities(policy, log, leaves, starts, sample)
        return Target(probabilities[np.asarray(log.position), np.asarray(log.action)], probabilities)
    here = {name: leaf[log.position] for name, leaf in leaves.items()}
    if isinstance(space, MultiDiscrete):
        likely = replay_log_probability(policy, here, np.asarray(log.action), log.starts)
        if likely is None:
            raise SpecError(
                "the policy makes several simultaneous choices and has no probabilities for them. fix: judge a policy "
                "with probabilities, or one choice at a time"
            )
        return Target(np.exp(likely.astype(np.float64)))
    bounds, likely = common_bounds(policy.spec.action, space), None
    if sample:
        likely = replay_log_probability(policy, here, np.asarray(log.action), log.starts)
    if likely is not None:
        drawn, atoms, density = _drawn(policy, leaves, starts, seed), atoms_of(log), np.exp(likely.astype(np.float64))
        if atoms is not None:
            density[atoms.lie_on(np.asarray(log.action)).any(axis=1)] = 0.0
        return Target(density, actions=drawn)
    return with_kernel(replay_actions(policy, leaves, starts), log, bounds, bandwidth, seed)


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
            f"bandwidth = {bandwidth!r}: expected a number above 0, a share of half the action's range. fix: use 0.2"
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

    def ask(seen: Any, allowed: Any, rows: Any, memory: Any) -> NDArray[Any]:
        before = None if memory is None else memory.of(slice(None))
        seeds = generator.integers(2**31, size=DRAWS)
        several = [policy.act(seen, int(one), allowed, before and before.of(slice(None)))[0] for one in seeds]
        return np.stack(several, axis=1)

    return np.asarray(replay(policy, leaves, starts, None, ask), np.float32)


def _translated(policy: Policy, log: Log) -> Leaves:
    """The log's stored observations in the form of the policy's spec."""
    one, two = policy.spec.action, log.spec.action
    if isinstance(one, Continuous) and isinstance(two, Continuous):
        named = bool(one.names and two.names)
        if one.size != two.size or (named and one.names != two.names):
            raise SpecError(
                f"this log's actions are {two.names or two.size}, the policy's are {one.names or one.size}. fix: judge "
                "it on a log with the same actions, in the same order"
            )
    elif isinstance(one, MultiDiscrete) or isinstance(two, MultiDiscrete):
        if one != two:
            raise SpecError(f"this log's actions are {two}, the policy's are {one}: expected the same")
    else:
        action_orders(policy.spec, log.spec, "this log")
    shown = leaf_translations(policy.spec, log.spec, "this log")
    return {name: translate(np.asarray(log.observation[name])) for name, translate in shown.items()}


@runtime_checkable
class ProbabilityPolicy(Protocol):
    """An external policy: `probabilities(observation, mask)` [B, A] for observations by leaf and a mask or None."""

    def probabilities(self, observation: Mapping[str, NDArray[Any]], mask: NDArray[np.bool_] | None) -> NDArray[Any]:
        """Probability of each action in each row."""
        ...


class ExternalPolicy:
    """An external policy with the interface of a tidelog policy; it is judged by its unchanged probabilities."""

    is_recurrent = False

    def __init__(self, tells: ProbabilityPolicy, spec: Spec) -> None:
        if not isinstance(spec.action, Discrete):
            raise SpecError(
                f"an external policy supports only discrete actions; this log has {type(spec.action).__name__} actions"
            )
        self._tells, self.spec, self.origin = tells, spec, dict[str, Any]()
        self.actions, self.kind = spec.action.n, type(tells).__name__

    def probabilities(self, leaves: Mapping[str, NDArray[Any]], mask: Any = None, memory: Any = None) -> NDArray[Any]:
        """The external policy's probabilities [B, A]; SpecError if they are invalid."""
        chances = np.asarray(self._tells.probabilities(leaves, mask), np.float64)
        expected = (len(next(iter(leaves.values()))), self.actions)
        if chances.shape != expected:
            raise SpecError(
                f"the policy's probabilities have shape {chances.shape}: expected [rows, actions] = {expected}"
            )
        sums = chances.sum(axis=1)
        if not (chances >= 0).all() or not np.allclose(sums, 1.0, atol=1e-3):
            row = int(np.flatnonzero(~((chances >= 0).all(axis=1) & np.isclose(sums, 1.0, atol=1e-3)))[0])
            raise SpecError(
                f"the policy's probabilities in row {row} are {chances[row]}: expected numbers of at least 0 that add "
                "up to 1"
            )
        return chances

    def act(
        self, leaves: Mapping[str, NDArray[Any]], seed: None = None, mask: Any = None, memory: Any = None
    ) -> tuple[NDArray[Any], None]:
        """The most likely actions [B], without propensities."""
        return np.asarray(self.probabilities(leaves, mask).argmax(axis=1)), None


def as_policy(policy: Any, spec: Spec) -> Any:
    """The policy itself, or an external policy or an estimator with its interface; SpecError if it is none of these."""
    if isinstance(policy, Policy | Rule):
        return policy
    if is_estimator(policy) and not isinstance(policy, ProbabilityPolicy):
        return EstimatorPolicy(policy, spec)
    if isinstance(policy, type) or not isinstance(policy, ProbabilityPolicy):
        kind = policy.__name__ if isinstance(policy, type) else type(policy).__name__
        raise SpecError(
            f"expected a policy, found {kind}. fix: pass run.policy(), tl.load_policy(...), an object with "
            "probabilities(observation, mask), or a fitted scikit-learn estimator"
        )
    return ExternalPolicy(policy, spec)


def is_sampled(policy: Any, sample: bool | None) -> bool:
    """Return whether the sampled policy is evaluated; None: if that is its declared way.

    An external policy is, a rule is not.
    """
    if isinstance(policy, ExternalPolicy | Rule):
        return isinstance(policy, ExternalPolicy)
    return bool(policy.acting == "sample" if sample is None else sample)


def check_fit(policy: Any, log: Log) -> None:
    """Raise SpecError if the policy's observations or actions differ from the log's; checks the first episode."""
    target_of(policy, log.take_episodes([0]))
