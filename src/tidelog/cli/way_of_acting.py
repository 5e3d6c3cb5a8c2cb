"""The flags --sample and --mode, and what a command says about the way in which a policy acts."""

from __future__ import annotations

import sys

from tidelog.cli.flags import print_details
from tidelog.errors import ConfigError
from tidelog.runtime.way_of_acting import DOES, Acting, Acts, P, in_way, verdict_line


def chosen_way(sample: bool, mode: bool) -> Acting | None:
    """The way of acting of the flags --sample and --mode; None, the policy's declared way, without either."""
    if sample and mode:
        raise ConfigError("--sample and --mode", "one of them", "drop one")
    return "sample" if sample else "mode" if mode else None


def in_chosen_way(policy: P, sample: bool, mode: bool, otherwise: Acting = "mode") -> P:
    """Return the policy in the way of the flags, else its declared way, else `otherwise`; a note names another."""

    def tell(_: str) -> None:
        holds = f"a verdict on this policy holds where it {DOES[policy.acting or 'mode']}"
        print(f"note: {holds}, which {'--mode' if mode else '--sample'} changes", file=sys.stderr)  # noqa: T201

    return in_way(policy, chosen_way(sample, mode), otherwise, tell)


def print_way(policy: Acts) -> None:
    """Print the verdict on the policy, which begins with what to do, and how the policy acts."""
    print_details(verdict_line(policy.verdict), f"the policy {DOES[policy.acting or 'mode']}")
