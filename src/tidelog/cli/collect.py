"""`tidelog collect --env NAME --out LOG`: play an environment and keep the log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidelog.cli.act import open_policy
from tidelog.cli.flags import parse
from tidelog.cli.tables import say
from tidelog.errors import ConfigError
from tidelog.policies.rollout import collect


@dataclass
class Collect:
    """Play whole episodes and write them as a log, with propensities where the policy has a density."""

    env: str
    """a built-in environment or a gymnasium id"""
    out: str
    """the folder of the log"""
    policy: str = "random"
    """`random`, a saved policy, or a run folder"""
    episodes: int | None = None
    """how many episodes; or say --steps"""
    steps: int | None = None
    """play the episodes that hold at least so many decisions"""
    seed: int = 0
    """what the play depends on"""
    deterministic: bool = False
    """take the policy's most likely action instead of a sample"""


def run(words: list[str]) -> int:
    """Collect a log."""
    options = parse(Collect, words, "collect")
    target = Path(options.out)
    if target.exists():
        raise ConfigError(f"{target} exists: choose another folder, nothing was written")
    policy = None if options.policy == "random" else open_policy(options.policy)
    log = collect(
        options.env,
        policy,
        episodes=options.episodes,
        steps=options.steps,
        seed=options.seed,
        sample=not options.deterministic,
    )
    log.save(target)
    returns = log.statistics().returns or {}
    say(f"{log.steps:,} steps in {len(log.episodes):,} episodes, mean return {returns['mean']:.4g}: {target}")
    return 0
