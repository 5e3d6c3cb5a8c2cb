"""What a policy is worth while it trains: episodes played in environments, and functions of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.envs.registry import make
from tidelog.errors import ConfigError
from tidelog.policies.action_mapping import Aligned
from tidelog.policies.policy import Policy
from tidelog.policies.rollout import rollout
from tidelog.policies.statistics import iqm

SAMPLED = "sampled:"  # before an environment's name: actions are drawn from the policy


def check_playable(policy: Policy, episodes: Mapping[str, int]) -> None:
    """Raise ConfigError or SpecError where an environment is unknown or does not fit the policy."""
    for name in episodes:
        environment = make(name.removeprefix(SAMPLED), 1)
        try:
            Aligned(policy, environment.spec, environment.name)
        finally:
            environment.close()


def evaluated(episodes: Mapping[str, int], own: Mapping[str, Any]) -> list[str]:
    """The names of the metrics that `evaluate` returns."""
    return [metric for name in episodes for metric in (f"play/{name}", f"play/{name}/iqm")] + list(own)


def evaluate(
    policy: Policy, episodes: Mapping[str, int], own: Mapping[str, Callable[[Policy], float]]
) -> dict[str, float]:
    """`{"play/<environment>": mean return, "play/<environment>/iqm": ..., "<own>": ...}`.

    Play is deterministic, or where the name begins with `sampled:` drawn from the policy.
    """
    found: dict[str, float] = {}
    for name, count in episodes.items():
        returns = rollout(policy, name.removeprefix(SAMPLED), count, seed=0, sample=name.startswith(SAMPLED))
        found[f"play/{name}"] = float(returns.mean())
        found[f"play/{name}/iqm"] = iqm(returns)
    return found | {name: _number(name, function(policy)) for name, function in own.items()}


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"evaluate['{name}'] returned {value!r}: expected a number") from None
