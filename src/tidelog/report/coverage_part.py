"""Actions of the log, compared with the policies' choices at the same steps.

Letters: `N` compared steps, `A` actions or action size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidelog.data.log import Log
from tidelog.errors import TidelogError
from tidelog.number_text import three_digits
from tidelog.ope.imitation import Imitation
from tidelog.report.charts import Source, Values, overlaid, shares
from tidelog.report.frame import figure, folded, grid, legend, paragraph, section
from tidelog.report.learning_part import Line, lines_of
from tidelog.report.saved import LogSource, SavedRun, fingerprint
from tidelog.runtime.replay import replay_actions
from tidelog.training.runs.policies import member_policy
from tidelog.types import Continuous, Discrete, MultiDiscrete

MOST_STEPS = 20_000
MOST_MEMBERS = 10  # largest number of seeds per algorithm
_MOST_ACTIONS = 25
_MOST_DIMENSIONS = 24
_MOST_OPEN = 4  # dimensions that are not folded


@dataclass(frozen=True, eq=False)
class Part:
    """Compared steps of a log: whole episodes; the last one is cut at the limit."""

    log: Log
    steps: int  # N
    description: str

    @property
    def starts(self) -> Values:
        """First rows of the episodes, then N."""
        return np.append(self.log.starts[self.log.starts < self.steps], self.steps)


@dataclass(frozen=True, eq=False)
class Choices:
    """Actions of one algorithm's seeds, [seeds, N, ...]."""

    line: Line
    actions: Values


def coverage(runs: Sequence[SavedRun], logs: Mapping[str, LogSource]) -> str:
    """The section: for every log, its actions and those of the policies that learnt from it."""
    body = [
        _one_log(found, [line for line in lines_of(runs) if fingerprint(line.run) == mark], len(logs) > 1)
        for mark, found in logs.items()
    ]
    return section("Actions of log and policy", "".join(body), "actions")


def _one_log(found: LogSource, lines: Sequence[Line], several: bool) -> str:
    if not isinstance(found.log, Log):
        return paragraph(f"{found.reason} The policies' actions at its steps are not shown.")
    part, notes, chosen = part_of(found.log, lines), [], []
    for line in lines:
        try:
            run, rows = line.run, part.log.transitions[: part.steps]
            policies = [member_policy(run.path, run.record, member) for member in line.members[:MOST_MEMBERS]]
            actions = [replay_actions(policy, rows.observation, part.starts, rows.mask) for policy in policies]
            chosen.append(Choices(line, np.stack(actions)))
        except TidelogError as error:
            notes.append(f"{line.name}: its policy cannot be loaded. {error}")
    names = ", ".join(line.name for line in lines)
    head = [paragraph(f"{'The log of ' + names + '. ' if several else ''}{part.description}", "soft")]
    key = legend([("log", "log"), *((f"c{one.line.colour}", one.line.name) for one in chosen)])
    likeness = "".join(paragraph(_likeness(one, part)) for one in chosen)
    drawn, hidden = list(_pictures(part, chosen)), _action_count(part.log) - _MOST_DIMENSIONS
    pictures = grid(drawn[:_MOST_OPEN], broad=True)
    if len(drawn) > _MOST_OPEN:
        folded_name = f"{len(drawn) - _MOST_OPEN:,} more dimensions of the action"
        pictures += folded(folded_name, grid(drawn[_MOST_OPEN:], broad=True))
    pictures += paragraph(f"{hidden:,} more action dimensions are not shown.") if hidden > 0 else ""
    return "".join([*head, *map(paragraph, notes), key, likeness, pictures])


def _action_count(log: Log) -> int:
    """Number of the log's action dimensions, or of its choices at once."""
    space = log.spec.action
    if isinstance(space, Continuous):
        return space.size
    return len(space.sizes) if isinstance(space, MultiDiscrete) else 1


def part_of(log: Log, lines: Sequence[Line]) -> Part:
    """Random episodes that all runs held out (all episodes, if there is none), until there are enough steps."""
    common = np.ones(len(log.episode_ids), bool)
    for line in lines:
        held = line.run.record.held_out
        common &= np.isin(log.episode_ids, np.asarray(held)) if held else False
    held_out = bool(common.any())
    ordinals = np.flatnonzero(common) if held_out else np.arange(len(common))
    mixed = np.random.default_rng(0).permutation(ordinals)
    lengths = np.diff(log.starts)[mixed]
    episodes = mixed[: int(np.searchsorted(lengths.cumsum(), MOST_STEPS)) + 1]
    part = log.take_episodes(episodes)
    steps = min(part.steps, MOST_STEPS)
    scope = f"all {steps:,} steps" if len(episodes) == len(mixed) and steps == part.steps else f"{steps:,} steps"
    whose = "the held-out episodes" if held_out else "the log's episodes"
    sampled = "" if scope.startswith("all") else ", whole random episodes"
    return Part(
        part, steps, f"Actions of the log and the policies' most likely actions, at {scope} of {whose}{sampled}."
    )


def _likeness(one: Choices, part: Part) -> str:
    found = [Imitation.of(part.log, actions, part.starts) for actions in one.actions]
    if len(found) == 1:
        return f"{one.line.name} {found[0].sentence}."
    each, beside = np.asarray([seed.policy.mean() for seed in found]), found[0].constant.mean()
    if found[0].is_distance:
        text, always = f"mean distance to the logged actions {_over(each, three_digits)}", three_digits(beside)
    else:
        text, always = f"the same action as the log at {_over(each, '{:.1%}'.format)} of the steps", f"{beside:.1%}"
    return f"{one.line.name}: {text}; {found[0].constant_name}: {always}."


def _over(each: Values, written: Callable[[float], str]) -> str:
    if len(each) == 1:
        return written(each[0])
    return f"{written(each.mean())} ({written(each.min())} to {written(each.max())} over {len(each)} seeds)"


def _pictures(part: Part, chosen: Sequence[Choices]) -> Iterator[str]:
    space, logged = part.log.spec.action, part.log.action[: part.steps]
    if isinstance(space, Discrete):
        yield _share_bars("action", space.n, space.names, logged, [(one.line.colour, one.actions) for one in chosen])
    elif isinstance(space, MultiDiscrete):
        for place, size in enumerate(space.sizes[:_MOST_DIMENSIONS]):
            mine = [(one.line.colour, one.actions[..., place]) for one in chosen]
            yield _share_bars(f"action[{place}]", size, (), logged[:, place], mine)
    else:
        for place in range(min(space.size, _MOST_DIMENSIONS)):
            name = space.names[place] if space.names else f"action[{place}]"
            sources = [Source("log", "log", logged[:, place].astype(np.float64))]
            sources += [
                Source(one.line.name, f"c{one.line.colour}", one.actions[..., place].ravel().astype(np.float64))
                for one in chosen
            ]
            means = ", ".join(f"{one.name} mean {three_digits(one.values.mean())}" for one in sources)
            yield figure(name, overlaid(f"Distribution of {name}: {means}", sources, name), means)


def _share_bars(
    name: str, count: int, names: Sequence[str], logged: Values, chosen: Sequence[tuple[int, Values]]
) -> str:
    """Shares of each action in the log and among the choices of all seeds; shows the most frequent actions."""
    sources = [("log", np.bincount(logged, minlength=count) / logged.size)]
    sources += [(f"c{colour}", np.bincount(acts.ravel(), minlength=count) / acts.size) for colour, acts in chosen]
    most = np.stack([values for _, values in sources]).max(axis=0)
    order = np.argsort(-most, kind="stable")[:_MOST_ACTIONS]
    order = np.sort(order) if count <= _MOST_ACTIONS else order
    labels = [names[place] if names else str(place) for place in order]
    top = int(np.argmax(sources[0][1]))
    title = f"Shares of each {name}: the log takes {names[top] if names else top} most often, {sources[0][1][top]:.1%}"
    chart = shares(title, labels, [(colour, values[order]) for colour, values in sources])
    new = [int(((values > 0) & (sources[0][1] == 0)).sum()) for _, values in sources[1:]]
    absent = f" Actions chosen by a policy but absent from these steps of the log: {max(new):,}." if any(new) else ""
    more = f" {count - len(order):,} rarer actions are not shown." if count > len(order) else ""
    return figure(name, chart, f"{absent}{more}".strip())
