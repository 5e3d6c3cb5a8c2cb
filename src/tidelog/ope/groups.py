"""For whom a policy is better: the difference from the behaviour policy in groups of episodes, for all groups at once.

The user names a column of the observation; its value at the first decision of an episode is the episode's group. Groups
depend on observations alone. The difference of a group is the deciding estimate on its own episodes, with its own
weights, and the rules of a verdict decide about it. A group whose weights have no support has no number and no part in
the width of the others' intervals: no reward has a part in that. The other intervals hold for all groups of all
policies at once, by the same max-t method as those of several policies, at the level of the verdict.

Letters: `N` steps, `E` episodes, `G` groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.errors import ConfigError, nearest
from tidelog.ope.decide import FEWEST, NOTHING, SUPPORT, Assessment, LookResult, decide
from tidelog.ope.estimators import Ratios
from tidelog.ope.intervals import Confidence, adaptive_deviate, critical_values, normal_deviate
from tidelog.ope.verdict import IF_RANDOMISED, GroupDifference
from tidelog.types import Codes, Vector

MOST = 10  # groups; numbers of more different values are cut at their quartiles
QUARTILES = (0.25, 0.5, 0.75)
MISSING = "missing"
# The whole may lack support by these, and a group have it: they are about too few episodes, not about assumptions.
OF_FEW = {*SUPPORT[:-1], "weight", "earning_episodes", "carrying_episodes", "unshown_share"}


@dataclass(frozen=True, eq=False)
class EpisodeGroups:
    """The group of each episode."""

    column: str
    labels: tuple[str, ...]  # [G]
    of: NDArray[np.int64]  # [E]
    changes: float  # share of episodes in which the column has another value later

    @property
    def note(self) -> str:
        """That the first decision determines the group, where the column changes; else empty."""
        if not self.changes:
            return ""
        return f"'{self.column}' changes within {self.changes:.1%} of episodes: the first decision determines the group"


def episode_groups(log: Log, by: str) -> EpisodeGroups:
    """The groups of a column of the observation; ConfigError unless it makes 2 to 10 groups."""
    columns = _columns(log)
    if by not in columns:
        raise ConfigError(f"by = {by!r}: the observation has no such column", fix=nearest(str(by), columns))
    values, labels = columns[by]
    starts = np.asarray(log.starts)
    first = values[starts[:-1]]
    known = np.ones(len(first), bool)
    missing = columns.get(f"{by} {MISSING}")
    if missing is not None:  # the values there are fills
        known = missing[0][starts[:-1]] == 0
    different, of = np.unique(first, return_inverse=True)
    if labels is None:
        labels = {value: f"{value:g}" for value in different.tolist()}
        if len(np.unique(first[known])) > MOST:
            cuts = np.unique(np.quantile(first[known], QUARTILES))
            ends = [f"{cut:.4g}" for cut in cuts]
            names = [f"below {ends[0]}", *(f"{low} to {high}" for low, high in pairwise(ends))]
            labels = dict(enumerate([*names, f"{ends[-1]} or more"]))
            different, of = np.unique(np.searchsorted(cuts, first, side="right"), return_inverse=True)
    names = [labels.get(value, str(value)) for value in different.tolist()]
    if not known.all():
        names, of = [*names, MISSING], np.where(known, of, len(names))
    present, of = np.unique(of, return_inverse=True)
    if not 2 <= len(present) <= MOST:
        fix = "name a column of fewer values, or add one that joins them to the observation, and train again"
        raise ConfigError(
            f"by = {by!r} makes {len(present):,} group{'s' * (len(present) != 1)}",
            f"2 to {MOST}",
            fix if len(present) > MOST else "name a column that differs between episodes",
        )
    changes = np.logical_or.reduceat(values != np.repeat(first, np.diff(starts)), starts[:-1]).mean()
    return EpisodeGroups(by, tuple(names[one] for one in present.tolist()), of.astype(np.int64), float(changes))


def _columns(log: Log) -> dict[str, tuple[NDArray[Any], dict[Any, str] | None]]:
    """The values [N] of each column of the observation, and the labels of its codes; None for numbers."""
    columns: dict[str, tuple[NDArray[Any], dict[Any, str] | None]] = {}
    position = np.asarray(log.position)
    for leaf_name, leaf in log.spec.observation.items():
        if not isinstance(leaf, Codes | Vector):
            continue
        values = np.asarray(log.observation[leaf_name])[position]
        for place in range(values.shape[1]):
            alone = leaf_name if values.shape[1] == 1 else f"{leaf_name}[{place}]"
            name = leaf.names[place] if leaf.names else alone
            labels = None
            if isinstance(leaf, Codes):
                words = leaf.vocabularies[place] if leaf.vocabularies else ()
                labels = {code: words[code] if code < len(words) else str(code) for code in range(leaf.sizes[place])}
            columns[name] = (values[:, place], labels)
    return columns


def group_differences(
    decided: Sequence[Assessment], groups: EpisodeGroups, look: LookResult
) -> list[tuple[GroupDifference, ...]]:
    """The groups of each policy with their differences, simultaneous over all groups of all policies."""
    chosen = [groups.of == group for group in range(len(groups.labels))]
    parts = [[(a, _part_of(a, one), one) for one in chosen] for a in decided]
    ready = [(a, part, one) for own in parts for a, part, one in own if part is not None]
    widenings = iter(_widenings(ready, len(chosen), look))
    return [
        tuple(
            _difference(a, part and replace(part, widening=next(widenings)), label, int(one.sum()))
            for label, (a, part, one) in zip(groups.labels, own, strict=True)
        )
        for own in parts
    ]


def _part_of(a: Assessment, chosen: NDArray[np.bool_]) -> Assessment | None:
    """The assessment of the policy on these episodes [E]; None where the log cannot tell by what no reward changes."""
    if a.policy_evidence is None or not a.able:
        return None
    if a.decision == "unsupported" and {finding.rule for finding in a.findings} - OF_FEW:
        return None  # rules against a difference are asked of each group again
    if len(np.unique(a.evidence.unit_of[chosen])) < FEWEST:
        return None
    basis = replace(a.basis, policy=a.evidence.of_episodes(chosen), cloning=None, if_randomised=None)
    part = replace(a, policy_evidence=basis, ladder=None, first_part=None)
    return part if part.has_support else None


def _widenings(
    ready: Sequence[tuple[Assessment, Assessment, NDArray[np.bool_]]], count: int, look: LookResult
) -> list[float]:
    """How much longer each interval is than one at the level of `Limits`, for all groups and the looks before.

    A part of an earlier look may choose its policies by the results of that look: Bonferroni's value for all of them.
    """
    if not ready:
        return []
    limits, seed = ready[0][0].limits, ready[0][0].seed
    usual, before = normal_deviate(look.error), 0 if look.look is None else look.look.policies_before
    least = adaptive_deviate(look.error / len(ready), before) if before else usual
    if look.policies > len(look.names):
        least = max(least, normal_deviate(look.error / (look.policies * count)))
    differences = [_among_all(a, part, chosen) for a, part, chosen in ready]
    reach = critical_values(differences, Confidence(limits.level, limits.replicates, seed), look.error)
    plain = normal_deviate(1.0 - limits.level)
    return [max(float(one), least) / plain if max(float(one), least) > plain else 1.0 for one in reach]


def _among_all(a: Assessment, part: Assessment, chosen: NDArray[np.bool_]) -> Ratios | None:
    """The difference of a group over the rows of all episodes, of which the others have no weight."""
    ratios = part.minus()
    if len(ratios) != part.evidence.episodes:  # sums of neighbours
        return None
    numerators, denominators = np.zeros((2, len(chosen), ratios.numerators.shape[1]))
    numerators[chosen], denominators[chosen] = ratios.numerators, ratios.denominators
    return Ratios(numerators, denominators).clustered(a.evidence.clusters).grouped(a.limits.groups)


def _difference(a: Assessment, part: Assessment | None, label: str, episodes: int) -> GroupDifference:
    """The decision about a group by the rules of a verdict; a loss needs no more than its interval."""
    if part is None or decide(part).decision == "unsupported":
        return GroupDifference(label, episodes, "unsupported", NOTHING)
    size = part.support.effective_sample_size
    if part.interval.high < 0:
        return GroupDifference(label, episodes, "worse", part.interval, size)
    decision = IF_RANDOMISED if (part.decision, a.decision) == ("better", IF_RANDOMISED) else part.decision
    return GroupDifference(label, episodes, decision, part.difference, size)
