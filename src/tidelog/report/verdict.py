"""The part of a report about the verdict and the coverage of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tidelog._text import amount, in_unit, three_digits, with_ends
from tidelog.data.log import Log
from tidelog.errors import TidelogError
from tidelog.ope.estimate import ESTIMATORS
from tidelog.ope.estimators import Estimate
from tidelog.ope.imitation import Imitation
from tidelog.ope.risk import Band, Risk
from tidelog.ope.verdict import SavedVerdict, Verdict, percent
from tidelog.report.answer_part import GUESS, WORDS
from tidelog.report.frame import (
    Curve,
    Reach,
    Source,
    Values,
    binned,
    bullets,
    command,
    curves,
    definitions,
    figure,
    folded,
    grid,
    heading,
    intervals,
    legend,
    overlaid,
    paragraph,
    section,
    shares,
    short,
    table,
    with_picture,
)
from tidelog.report.learning_part import Line, lines_of
from tidelog.report.runs import LogSource, SavedRun, evaluate_command, file_name, fingerprint, plain, source
from tidelog.runtime.policy import replay_actions
from tidelog.training.run import member_policy
from tidelog.types import Continuous, Discrete, MultiDiscrete

# Actions of the log, compared with the policies' choices at the same steps.
#
# Letters: `N` compared steps, `A` actions or action size.

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


# The verdict on each run: banner, reasons, difference from the logger, worst episodes, and the table of estimates.


def headline(run: SavedRun) -> SavedVerdict:
    """The verdict that the page begins with, that of the run's subject if it has one.

    Of each policy its newest verdict counts, because it acts in the way in which it was judged last. The first is the
    recommended one of the newest set of policies that were judged together; else the best of those that are better
    (several looks at the same episodes are held to stricter levels, so that it is not better by luck); else, of that
    set, the supported one with the highest lower end; else the newest verdict.
    """
    if run.subject is not None:
        return run.subject
    newest = {one.name: one for one in reversed(run.verdicts)}
    better = [one for one in newest.values() if one.verdict.decision == "better"]
    together = next((one.together for one in run.verdicts if one.together is not None), None)
    recommended = None if together is None else newest.get(str(together.answer.recommendation.name))
    if recommended in better:
        return recommended
    names = [] if together is None else [row.name for row in together.rows]
    supported = [one for one in newest.values() if one.name in names and one.verdict.decision != "unsupported"]
    first = better or supported
    if first:
        return max(first, key=lambda one: one.verdict.difference.low)
    return next((newest[name] for name in names if name in newest), run.verdicts[0])


def verdict_section(run: SavedRun) -> str:
    """The headline's verdict in words with its interval, how it was judged, and all others."""
    if not run.verdicts:
        return _none(run)
    shown = headline(run)
    verdict = shown.verdict
    first, *others = verdict.reasons
    assumed = folded("What this answer rests on", bullets(others)) if others else ""
    parts = "".join([paragraph(verdict.outcome), bullets([first]), assumed])
    body = [paragraph(_in_short(run, shown), "soft")]
    if verdict.decision == "unsupported":
        body += [parts, folded("The numbers, which are guesses outside the log", _difference(verdict))]
    else:
        body.append(with_picture(parts, _difference(verdict)))
    body += [folded("How it was judged", _judging_method(shown)), risk_of_verdict(verdict)]
    if len(run.verdicts) > 1:
        rows = [
            [one.path.stem, one.policy, one.verdict.decision,
             GUESS if one.verdict.decision == "unsupported" else with_ends(one.verdict.difference, sign=True),
             one.verdict.deciding, f"{one.verdict.episodes:,}", _day(one)]
            for one in run.verdicts
        ]  # fmt: skip
        difference = f"difference from the logger{in_unit(verdict.reward_unit, 'in ')}"
        head = ("file", "policy", "decision", difference, "deciding estimator", "episodes", "date")
        marked = [place for place, one in enumerate(run.verdicts) if one is shown]
        listed = table(head, rows, "All verdicts on this run, the newest first", named=True, marked=marked)
        body.append(folded(f"All {len(run.verdicts):,} verdicts on this run", listed))
    return "".join(body)


def _in_short(run: SavedRun, shown: SavedVerdict) -> str:
    """The judged policy with its difference, the date, and the file of the judged episodes, in two sentences."""
    verdict = shown.verdict
    number = "the log shows no reliable number for it"
    if verdict.decision != "unsupported" and np.isfinite(verdict.difference.estimate):
        low, high = (three_digits(end, sign=True) for end in verdict.difference[1:])
        number = (
            f"{amount(verdict.difference.estimate, verdict.reward_unit, sign=True)} per episode compared with the "
            f"logger ({percent(verdict.level)} interval: {low} to {high})"
        )
    log = verdict.context.get("log")
    file = log.get("source") if isinstance(log, Mapping) else None
    where = file_name(str(file)) if file else source(run.record, short=True)
    return f"{shown.policy}: {number}. Judged on {_day(shown)} on {verdict.episodes:,} episodes of {where}."


def _day(saved: SavedVerdict) -> str:
    return datetime.fromtimestamp(saved.date, UTC).date().isoformat()


def _none(run: SavedRun) -> str:
    if not run.has_log:
        text = (
            f"This run learnt in the environment {run.record.environment}, so there is no log to judge it on. Its "
            "returns there show how good it is; this command plays its policies:"
        )
        return paragraph(text) + command(evaluate_command(run))
    held_out = len(run.record.held_out)
    if not run.record.has_rewards:
        text = (
            "The log has no rewards, so no policy can be judged better or worse than its decisions. How well the "
            f"policy imitates them is said below, under Actions{' (of its held-out episodes)' if held_out else ''}. "
            "To judge policies, name a reward in the mapping and train again."
        )
        return paragraph(text)
    text = f"This run was not judged yet. This command judges it on its {held_out:,} held-out episodes:"
    if not held_out:
        text = (
            "This run was not judged yet, and it held no episodes out. Judging needs a log that it did not learn from:"
        )
    return paragraph(text) + command(run.record.judge_command(run.path))


def _difference(verdict: Verdict) -> str:
    kind = WORDS[verdict.decision][0]
    rows = [Reach("policy minus logger", verdict.difference, kind, strong=True)]
    if verdict.difference_from_bc is not None:
        rows.append(Reach("policy minus clone", verdict.difference_from_bc, "log", strong=True))
    unit = verdict.reward_unit
    name = f"Difference in mean return, with {percent(verdict.level)} intervals"
    described = f"{name}: " + "; ".join(f"{row.name} {with_ends(row.interval)}" for row in rows)
    across_axis = f"difference in mean return per episode{in_unit(unit, 'in ')}"
    picture = intervals(described, rows, 0.0, across_axis, ("worse", "better"))
    guess = verdict.decision == "unsupported"
    warning = "Do not use these numbers: the log has too little support for them. " if guess else ""
    clone = " The clone is a policy that imitates the logger (behaviour cloning)." if len(rows) > 1 else ""
    return figure(name, picture, f"{warning}The logger's mean return is {with_ends(verdict.logger, unit)}.{clone}")


_DECIDING = {"wdr": "weighted doubly robust (wdr)", "drl": "double reinforcement learning (drl)"}


def _judging_method(shown: SavedVerdict) -> str:
    """What was estimated, by which estimator, how often these episodes were used, and every setting."""
    verdict = shown.verdict
    deciding = _DECIDING.get(verdict.deciding, verdict.deciding)
    text = f"Policy: {shown.policy}, judged on {verdict.episodes:,} episodes on {_day(shown)}. "
    if shown.before == 0:
        text += "This was the first look at these held-out episodes."
    else:
        times = "once" if shown.before == 1 else f"{shown.before:,} times"
        text += (
            f"These held-out episodes were judged {times} before, so the interval of the difference is stricter: it "
            f"has a level of {percent(verdict.level)}."
        )
    texts = (f"Estimated quantity: {verdict.estimand}.", f"Deciding estimator: {deciding}.", text)
    facts = {name: value for name, value in verdict.context.items() if name != "together"}  # a table of its own
    pairs = ((name, plain(value)) for name, value in _flat(facts))
    return "".join(paragraph(one, "soft") for one in texts) + definitions(pairs, tight=True)


_YES_OR_NO = 2  # different returns


def risk_of_verdict(verdict: Verdict) -> str:
    """The part, or the reason for its absence; empty for old verdicts without distributions."""
    if verdict.risk is None:
        if verdict.risk_reason is None:
            return ""
        return heading("Worst episodes") + paragraph(f"No distribution of returns: {verdict.risk_reason}.", "soft")
    risk = verdict.risk
    if len(np.unique(risk.points)) <= _YES_OR_NO:  # the mean says it all
        return ""
    return heading("Worst episodes") + with_picture(bullets(risk.sentences) + _tail_numbers(risk), _distribution(risk))


def _distribution(risk: Risk) -> str:
    """Both distribution functions as step functions with their bands."""
    drawn = [
        _step_curve("policy", 0, risk.points, risk.policy),
        _step_curve("logger", 1, risk.points, risk.logger, dashed=True),
    ]
    cvar = risk.cvar
    title = (
        f"Share of episodes with at most each return, from {three_digits(risk.lowest)} to {three_digits(risk.highest)}"
        f", policy and logger; mean of the worst episodes {with_ends(cvar.policy)} and {with_ends(cvar.logger)}"
    )
    explanation = (
        f"Share of episodes that earn at most each return: a curve further to the right is better. The bands hold "
        f"simultaneously at all returns, with {percent(risk.level)} confidence."
    )
    keys = legend([("c0", "policy"), ("c1", "logger (dashed)")])
    across_axis = f"return of an episode{in_unit(risk.reward_unit, 'in ')}"
    picture = curves(title, drawn, "share of episodes with at most this return", across_axis)
    return figure("Distribution of returns", picture + keys, explanation)


def _step_curve(name: str, colour: int, points: Values, band: Band, dashed: bool = False) -> Curve:
    """A distribution function as steps at its points, from 0."""
    across = np.repeat(points, 2)
    low, middle, high = (np.append(0.0, np.repeat(part, 2)[:-1]) for part in (band.low, band.estimate, band.high))
    return Curve(name, colour, across, middle, low, high, middle[None], dashed)


def _tail_numbers(risk: Risk) -> str:
    worst = f"mean of the worst {100 * risk.alpha:.4g}% (CVaR)"
    rows = [[worst, *(with_ends(interval) for interval in risk.cvar)]]
    if risk.probability is not None and risk.bad_outcome is not None:
        name = f"probability of {three_digits(risk.bad_outcome)} or less"
        rows.append([name, *(with_ends(interval) for interval in risk.probability)])
    rows += [
        [f"{100 * share:.4g}% of episodes earn at most", *(with_ends(interval) for interval in compared)]
        for share, compared in risk.quantiles
    ]
    head = (f"return{in_unit(risk.reward_unit, 'in ')}", "policy", "logger", "difference")
    return table(head, rows, "Worst episodes and quantiles, with simultaneous intervals", named=True)


def estimates(runs: Sequence[SavedRun]) -> str:
    """The section: every estimator with its interval and support, and the distribution of the episodes' weights."""
    body = []
    for run in runs:
        body += [heading(run.name)] if len(runs) > 1 else []
        if run.verdicts:
            body.append(_one(headline(run)))
        else:
            body.append(paragraph("No verdict, so no estimates."))
    return section("Estimates and their support", "".join(body), "estimates")


def _one(saved: SavedVerdict) -> str:
    verdict = saved.verdict
    rows, unit = list(verdict.estimates), verdict.reward_unit
    if not rows:
        return paragraph("No estimate was computed; see the reasons of the verdict.")
    reaches = [
        Reach(row.name, row.interval, "c0" if row.name == verdict.deciding else "log", row.name == verdict.deciding)
        for row in rows
    ]
    reaches.append(Reach("logger, as recorded", verdict.logger, "c1", strong=True))
    title = "Estimated mean returns with intervals: " + "; ".join(f"{r.name} {with_ends(r.interval)}" for r in reaches)
    text = f"{verdict.deciding} decides. The line is the logger's mean return; arrows point to ends outside the chart."
    line = verdict.logger.estimate if np.isfinite(verdict.logger.estimate) else None
    picture = figure(
        "Mean return, estimated",
        intervals(title, reaches, line, f"mean return per episode{in_unit(unit, 'in ')}"),
        text,
    )
    size = f"{three_digits(verdict.support.effective_sample_size)} of {verdict.support.episodes:,}"
    meaning = (
        f"Effective sample size {size}: weighted for this policy, the log is as informative as that many episodes made "
        "by the policy."
    )
    wide = table(_HEAD, [_support_cells(row, verdict) for row in rows], "Every estimator with its support", named=True)
    if verdict.decision == "unsupported":
        guesses = "".join([picture, _deciding_table(verdict), wide])
        return "".join(
            [_weights(saved), paragraph(meaning), folded("Guesses outside the log: do not use them", guesses)]
        )
    body = [grid([picture, _weights(saved)], broad=True), paragraph(meaning), _deciding_table(verdict)]
    return "".join([*body, folded(f"All {len(rows):,} estimators with their support, for a closer look", wide)])


def _deciding_table(verdict: Verdict) -> str:
    """The deciding estimator with its difference, which is the verdict's, and the policies it is compared with."""
    deciding = [row for row in verdict.estimates if row.name == verdict.deciding]
    rows = [
        (f"policy, by {_DECIDING.get(row.name, row.name)}", with_ends(row.interval),
         f"{with_ends(verdict.difference, sign=True)}, {percent(verdict.level)} interval",
         f"{three_digits(row.support.effective_sample_size)} of {row.support.episodes:,}")
        for row in deciding
    ]  # fmt: skip
    rows.append(
        ("logger, as recorded", with_ends(verdict.logger), "0", f"{verdict.episodes:,} of {verdict.episodes:,}")
    )
    unit = in_unit(verdict.reward_unit, "in ")
    head = ("", f"mean return{unit}", "difference from the logger", "effective sample size")
    marked = range(len(deciding))
    return table(head, rows, "The deciding estimator and its difference", named=True, marked=marked)


_HEAD = (
    "estimator", "how it works", "estimate", "interval", "method", "effective sample size", "largest weight",
    "mean weight", "Pareto k (tail of the weights)", "clipped", "unsupported mass", "propensities", "note",
)  # fmt: skip


def _support_cells(row: Estimate, verdict: Verdict) -> list[str]:
    support, known = row.support, str(verdict.context.get("propensities", "recorded"))
    mass = "unknown" if support.unsupported_mass is None else _share(support.unsupported_mass)
    how = ESTIMATORS[row.name].what if row.name in ESTIMATORS else ""
    return [
        row.name, how, three_digits(row.estimate), _ends(row.low, row.high), f"{row.method}, {percent(row.level)}",
        f"{three_digits(support.effective_sample_size)} of {support.episodes:,}", _share(support.largest_weight),
        f"{three_digits(support.mean_weight)} ± {three_digits(support.mean_weight_error)}",
        three_digits(support.pareto_k), _share(support.clipped_share), mass,
        "estimated" if row.estimated else known, row.note,
    ]  # fmt: skip


def _weights(saved: SavedVerdict) -> str:
    name = "Weights of episodes"
    total = int(saved.counts.sum()) + saved.zeros
    zeros = f"{saved.zeros:,} of {total:,} episodes have weight 0"
    if not len(saved.counts):
        return figure(name, "", f"{zeros}: none is possible under the policy.")
    low, high = float(saved.edges[0]), float(saved.edges[-1])
    powers = [float(power) for power in range(int(np.ceil(low - 1e-9)), int(np.floor(high + 1e-9)) + 1)]
    ticks = powers[:: max(1, -(-len(powers) // 6))] if len(powers) > 1 else sorted({low, *powers, high})
    labels = [(power, short(float(f"{10**power:.2e}")) if power > -5 else f"1e{power:.3g}") for power in ticks]
    title = (
        f"Histogram of episode weights from {three_digits(10**low)} to {three_digits(10**high)} on a logarithmic "
        f"scale; {zeros}"
    )
    text = f"Weight 1: the episode is as likely under the policy as under the logger; {zeros}."
    across_axis = "weight of an episode, logarithmic scale"
    return figure(name, binned(title, saved.counts, saved.edges, labels, across_axis), text)


def _flat(context: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in context.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{str(name).replace('_', ' ')}", value


def _ends(low: float, high: float, *, sign: bool = False) -> str:
    return f"{three_digits(low, sign=sign)} to {three_digits(high, sign=sign)}"


def _share(value: float) -> str:
    return f"{value:.1%}" if np.isfinite(value) else "no number"
