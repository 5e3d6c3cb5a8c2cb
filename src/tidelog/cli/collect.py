"""`tidelog collect --env NAME --out LOG`: play an environment and save the log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tidelog.cli.flags import Env, Folder, OutputFlags, check_targets, parse, present, print_line
from tidelog.cli.named_policies import open_policy
from tidelog.cli.way_of_acting import in_chosen_way
from tidelog.data.storage import is_saved_log
from tidelog.policies.rollout import collect


@dataclass
class Collect(OutputFlags):
    """Play complete episodes and write them as a log, with propensities if known."""

    env: Env
    """a built-in environment or a gymnasium id"""
    out: Folder
    """the output folder of the log"""
    policy: Annotated[str, "RUN|POLICY|random"] = "random"
    """`random`, a saved policy, or a run folder"""
    episodes: int | None = None
    """number of episodes; alternatively use --steps"""
    steps: int | None = None
    """play complete episodes with at least this many decisions in total"""
    seed: int = 0
    """random seed of the play"""
    sample: bool = False
    """sample actions from the policy's distribution; default: its declared way, else a sample"""
    mode: bool = False
    """take the policy's most likely actions"""
    overwrite: bool = False
    """replace the log in the folder of --out"""


def run(words: list[str]) -> int:
    """Collect a log."""
    options = parse(Collect, words, "collect")
    return present(options, lambda: _collect(options))


def _collect(options: Collect) -> dict[str, Any]:
    """Play, save the log, and return what it has."""
    target, policy = Path(options.out), None
    check_targets(target, overwrite=options.overwrite, replaceable=is_saved_log)
    if options.policy != "random":
        policy = in_chosen_way(open_policy(options.policy), options.sample, options.mode, otherwise="sample")
    log = collect(options.env, policy, episodes=options.episodes, steps=options.steps, seed=options.seed)
    log.save(target, overwrite=options.overwrite)
    returns = log.statistics().returns or {}
    count = len(log.episodes)
    facts = "" if options.quiet else f"{log.steps:,} steps in {count:,} episodes, mean return {returns['mean']:.4g}: "
    print_line(f"{facts}{target}")
    return {"log": str(target), "steps": log.steps, "episodes": count, "returns": returns}
