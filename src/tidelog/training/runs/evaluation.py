"""Evaluation during training: episodes in environments, and the user's own functions of the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.envs.registry import make
from tidelog.errors import ConfigError
from tidelog.policies.action_mapping import MappedPolicy
from tidelog.policies.policy import Policy
from tidelog.policies.rollout import rollout
from tidelog.policies.statistics import iqm

SAMPLED = "sampled:"  # prefix of an environment's name: sample the actions from the policy


def check_environments(policy: Policy, episodes: Mapping[str, int]) -> None:
    """Raise ConfigError or SpecError if an environment is unknown or does not fit the policy."""
    for name in episodes:
        environment = make(name.removeprefix(SAMPLED), 1)
        try:
            MappedPolicy(policy, environment.spec, environment.name)
        finally:
            environment.close()


def evaluated(episodes: Mapping[str, int], own: Mapping[str, Any]) -> list[str]:
    """Return the names of the metrics that `evaluate` returns."""
    return [metric for name in episodes for metric in (f"play/{name}", f"play/{name}/iqm")] + list(own)


def evaluate(
    policy: Policy, episodes: Mapping[str, int], own: Mapping[str, Callable[[Policy], float]]
) -> dict[str, float]:
    """Return `{"play/<environment>": mean return, "play/<environment>/iqm": ..., "<own>": ...}`.

    Actions are deterministic, or sampled from the policy if the name starts with `sampled:`.
    """
    metrics: dict[str, float] = {}
    for name, count in episodes.items():
        way = policy.with_acting("sample" if name.startswith(SAMPLED) else "mode")  # whatever a verdict declared
        returns = rollout(way, name.removeprefix(SAMPLED), count, seed=0)
        metrics[f"play/{name}"] = float(returns.mean())
        metrics[f"play/{name}/iqm"] = iqm(returns)
    return metrics | {name: _number(name, function(policy)) for name, function in own.items()}


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"evaluate['{name}'] returned {value!r}: expected a number. fix: return a float") from None
