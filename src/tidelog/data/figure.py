"""A figure about a log: returns, lengths of episodes, actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.data.core.log_columns import LogColumns
from tidelog.data.core.order import Values
from tidelog.data.statistics import bins, describe, episode_returns
from tidelog.figures import as_written, panels
from tidelog.number_text import in_unit
from tidelog.types import Discrete

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 20  # actions with a bar of their own
MOST_DIMENSIONS = 6  # of actions, each with a panel


def log_figure(log: LogColumns) -> Figure:
    """Draw histograms of returns and lengths over episodes, and the actions over steps."""
    histograms: list[tuple[str, str, str, Values]] = []  # title, across, what is counted, values
    returns = episode_returns(log)
    if returns is not None:
        wide = returns.reshape(len(returns), -1)
        for place, values in enumerate(wide.T):
            name = "Returns" if wide.shape[1] == 1 else f"Returns of reward {place}"
            across = f"return of an episode{in_unit(log.reward_unit, 'in ')}"
            histograms.append((name, across, "episodes", values))
    histograms.append(("Episode lengths", "steps of an episode", "episodes", np.diff(log.starts)))
    discrete = isinstance(log.spec.action, Discrete)
    if not discrete:
        wide = log.action.reshape(log.steps, -1)
        names = [str(name) for name in getattr(log.spec.action, "names", ())]
        for place in range(min(wide.shape[1], MOST_DIMENSIONS)):
            name = names[place] if names else f"action[{place}]"
            more = f", {place + 1} of {wide.shape[1]}" if wide.shape[1] > 1 else ""
            histograms.append((f"Actions{more}", name, "steps", wide[:, place]))
    figure, axes = panels([one[0] for one in histograms] + (["Action counts"] if discrete else []))
    for drawn, (_, across, counted, values) in zip(axes, histograms, strict=False):
        found = bins(values)
        width = np.diff(found.edges) if len(found.counts) > 1 else np.ones(1)
        drawn.bar(found.edges[:-1] + np.diff(found.edges) / 2, found.counts, width)
        drawn.set(xlabel=as_written(across), ylabel=counted)
    if discrete:
        _action_counts(axes[-1], describe(log).actions["counts"])
    return figure


def _action_counts(drawn: Any, counts: dict[str, int]) -> None:
    """One bar for each action; of many actions, only the most frequent ones, and the axis says so."""
    listed = [*counts.items()]
    if len(listed) > MOST_BARS:
        listed = sorted(listed, key=lambda pair: -pair[1])[:MOST_BARS]
    drawn.barh(range(len(listed)), [count for _, count in listed])
    drawn.set_yticks(range(len(listed)), [as_written(name) for name, _ in listed], fontsize="small")
    drawn.invert_yaxis()
    more = len(counts) - len(listed)
    drawn.set(xlabel=f"steps ({more:,} rarer actions are not shown)" if more else "steps", ylabel="action")
