"""`tidelog plan RUN | POLICY [--data LOG]`: how many episodes, or which exploration, would show an effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from tidelog._files import write_json
from tidelog._machine import limit_arenas
from tidelog.cli.flags import (
    DeclaredFlags,
    File,
    OutputFlags,
    Repeated,
    RunOrPolicy,
    check_targets,
    declared_value,
    parse,
    present,
    print_details,
    print_line,
)
from tidelog.cli.judge import Judge, policy_and_log
from tidelog.cli.policies import chosen_way
from tidelog.ope.decide import PROBABILITY, Limits
from tidelog.ope.plan import EXPLORED, SIMULATIONS, plan


@dataclass
class PlanCommand(OutputFlags, DeclaredFlags):
    """Plan how many new episodes, or which exploration, show that a policy is better."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a run folder (its best policy if there is one, else its first member), or a saved policy"""
    data: Repeated = ()
    """the pilot log, a table with --columns or a saved log (several: repeat the flag); default: the held-out episodes
    of the run"""
    columns: File | None = None
    """for tables: the mapping file"""
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
    sample: bool = False
    """plan for the policy by actions sampled from its distribution"""
    mode: bool = False
    """plan for its most likely actions; default: its declared way of acting"""
    seed: int = 0
    """random seed of the simulation, folds and models"""
    member: int | None = None
    """for a run folder: the member, counted from 0 as in `tidelog evaluate`"""
    propensities: Annotated[str, "logged|estimated|trees|best|FILE"] | None = None
    """where the probabilities of the logged decisions come from, as in `tidelog judge`"""
    bandwidth: float | None = None
    """smooth deterministic continuous actions with noise of this share of half of each action's range"""
    discount: float = 1.0
    """discount of the estimated return"""
    first_steps: int | None = None
    """plan for the return of this many first decisions of an episode"""
    model: Literal["auto", "tabular", "neural"] = "auto"
    """the value model: a table if there are few observations, else networks"""
    out: File | None = None
    """also write the plan to this JSON file"""
    overwrite: bool = False
    """replace this file if it exists"""
    limits: Limits = field(default_factory=Limits)
    """the support that a verdict needs"""


def run(words: list[str]) -> int:
    """Plan, and print the plan as sentences."""
    options = parse(PlanCommand, words, "plan")
    return present(options, lambda: _plan(options))


def _plan(options: PlanCommand) -> dict[str, Any]:
    limit_arenas()
    named = Judge(
        policies=(options.policy,), data=options.data, columns=options.columns, member=options.member,
        propensities=options.propensities, propensity=options.propensity, randomised=options.randomised,
    )  # fmt: skip
    policy, log, which = policy_and_log(named)
    check_targets(options.out, overwrite=options.overwrite)
    way, declared = chosen_way(options.sample, options.mode), declared_value(options.propensity, options.randomised)
    result = plan(
        policy,
        log,
        options.effect,
        options.probability,
        None if way is None else way == "sample",
        options.propensities if declared is None else declared,
        options.seed,
        episodes=options.episodes,
        explore=options.explore,
        simulations=options.simulations,
        discount=options.discount,
        limits=options.limits,
        first_steps=options.first_steps,
        bandwidth=options.bandwidth,
        model=options.model,
        progress=False if options.quiet else None,
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
