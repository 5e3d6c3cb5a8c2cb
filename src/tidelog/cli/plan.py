"""`tidelog plan RUN | POLICY [--data LOG]`: how many episodes, or which exploration, would show an effect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from tidelog._files import write_json
from tidelog._machine import limit_arenas
from tidelog.cli.flags import (
    OutputFlags,
    RunOrPolicy,
    check_targets,
    parse,
    present,
    print_details,
    print_line,
)
from tidelog.cli.judge import QuestionFlags, policy_and_log
from tidelog.ope.decide import PROBABILITY
from tidelog.ope.plan import EXPLORED, SIMULATIONS, plan


@dataclass
class PlanCommand(OutputFlags, QuestionFlags):
    """Plan how many new episodes, or which exploration, show that a policy is better."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a run folder (its best policy if there is one, else its first member), or a saved policy"""
    effect: float | None = None
    """the gain per episode to plan for; default: the estimated one if it is one, else 0.2 standard deviations of the
    logged returns"""
    probability: float = PROBABILITY
    """of the verdict `better`, if the policy has that effect"""
    episodes: int | None = None
    """say how likely so many episodes show it, and which share of exploration is enough"""
    explore: tuple[float, ...] = EXPLORED
    """shares of decisions drawn evenly over the actions that are planned beside the present logging"""
    simulations: int = SIMULATIONS
    """simulated logs of each logging: more make the plan more exact"""


def run(words: list[str]) -> int:
    """Plan, and print the plan as sentences."""
    return present(parse(PlanCommand, words, "plan"), _plan)


def _plan(options: PlanCommand) -> dict[str, Any]:
    limit_arenas()
    policy, log, which = policy_and_log(options.policy, options)
    check_targets(options.out, overwrite=options.overwrite)
    result = plan(
        policy,
        log,
        options.effect,
        options.probability,
        episodes=options.episodes,
        explore=options.explore,
        simulations=options.simulations,
        progress=False if options.quiet else None,
        **options.asked(),
    )
    content = result.to_json()
    head, first, *rest = result.sentences
    print_details(head)
    print_line(first)
    print_details(*rest, f"planned from {which}")
    if options.out is not None:
        write_json(Path(options.out), content)
        print_details(f"plan: {options.out}")
    return content
