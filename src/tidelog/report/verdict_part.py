"""The verdict on each run: banner, reasons, difference from the logger, worst episodes, and the table of estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tidelog.ope.estimators.risk import Compared, Risk
from tidelog.ope.estimators.risk_bands import Band
from tidelog.ope.estimators.support import Estimate
from tidelog.ope.verdict.results import Verdict, percent
from tidelog.ope.verdict.verdict_store import SavedVerdict
from tidelog.policies.statistics import Interval
from tidelog.report.charts import Curve, Reach, Values, binned, curves, intervals
from tidelog.report.frame import (
    bullets,
    command,
    definitions,
    figure,
    folded,
    grid,
    heading,
    legend,
    paragraph,
    section,
    table,
    with_picture,
)
from tidelog.report.saved import SavedRun, plain, quoted, ranks

# decision -> class of the style sheet, sign, label, meaning
WORDS = {
    "better": ("better", "▲", "Better", "than the logger (who made the log), judged on held-out episodes"),
    "worse": ("worse", "▼", "Worse", "than the logger (who made the log)"),
    "no difference shown": ("same", "≈", "No difference shown", "between the policy and the logger (who made the log)"),
    "unsupported": ("unknown", "?", "Unsupported", "the log cannot show how good this policy is"),
}


def headline(run: SavedRun) -> SavedVerdict:
    """The verdict that the page begins with: the best of the members that are better, else the newest verdict.

    Of each member its newest verdict counts, because it acts in the way in which it was judged last. Several looks at
    the same episodes are held to stricter levels, so that the best one is not better by luck.
    """
    newest = {str(one.verdict.context.get("name")): one for one in reversed(run.verdicts)}.values()
    better = [one for one in newest if one.verdict.decision == "better"]
    return max(better, key=lambda one: one.verdict.difference.low) if better else run.verdicts[0]


def banner(run: SavedRun) -> str:
    """The decision of the headline as text, sign and colour, or a note that there is none."""
    if ranks(run):
        return '<p class="banner none"><span><b>Lists, not decisions</b></span></p>'
    if not run.verdicts:
        return '<p class="banner none"><span><b>No verdict yet</b></span></p>'
    kind, sign, word, meaning = WORDS[headline(run).verdict.decision]
    return (
        f'<p class="banner {kind}"><span class="sign" aria-hidden="true">{sign}</span>'
        f"<span><b>{word}</b> {meaning}</span></p>"
    )


def verdict_section(run: SavedRun) -> str:
    """The headline's verdict with its interval, and all others."""
    if ranks(run):
        return paragraph("A policy that ranks items is judged by the items taken next, in the table of lists below.")
    if not run.verdicts:
        return _none(run)
    shown = headline(run)
    verdict = shown.verdict
    how = paragraph(f"Estimated quantity: {verdict.estimand}", "soft") + paragraph(_used(run), "soft")
    parts = [paragraph(verdict.paragraph), bullets(verdict.reasons), folded("How it was judged", how)]
    body = [_disagreement(run), with_picture("".join(parts), _difference(verdict))]
    body += [risk_of_verdict(verdict), _together(shown)]
    if len(run.verdicts) > 1:
        rows = []
        for one in run.verdicts:
            estimate, low, high = map(_plain, one.verdict.difference)
            episodes = f"{one.verdict.episodes:,}"
            rows.append([one.path.stem, one.policy, one.verdict.decision, estimate, f"{low} to {high}", episodes])
        head = ("file", "policy", "decision", "difference from the logger", "interval", "episodes")
        marked = [place for place, one in enumerate(run.verdicts) if one is shown]
        body.append(table(head, rows, "All verdicts on this run, the newest first", named=True, marked=marked))
    return "".join(body)


def _none(run: SavedRun) -> str:
    held_out = len(run.record.held_out)
    judge = f"tidelog judge {quoted(run.path)}"
    if held_out:
        text = f"This run was not judged yet. This command judges it on its {held_out:,} held-out episodes:"
        return paragraph(text) + command(judge)
    text = "This run was not judged yet, and it held no episodes out. Judging needs a log that it did not learn from:"
    return paragraph(text) + command(f"{judge} --data ANOTHER_LOG")


def _difference(verdict: Verdict) -> str:
    kind = WORDS[verdict.decision][0]
    rows = [Reach("policy minus logger", verdict.difference, kind, strong=True)]
    if verdict.difference_from_bc is not None:
        rows.append(Reach("policy minus behaviour cloning", verdict.difference_from_bc, "log", strong=True))
    numbers = "; ".join(f"{row.name} {_between(row.interval)}" for row in rows)
    name = f"Difference in mean return, with {percent(verdict.level)} intervals"
    picture = intervals(
        f"Difference in mean return with {percent(verdict.level)} intervals: {numbers}", rows, 0.0, ("worse", "better")
    )
    warning = (
        "Do not use these numbers: the log has too little support for them. "
        if verdict.decision == "unsupported"
        else ""
    )
    return figure(name, picture, f"{warning}{numbers}. The logger's mean return is {_between(verdict.logger)}.")


def _used(run: SavedRun) -> str:
    shown = headline(run)
    day = datetime.fromtimestamp(shown.date, UTC).date().isoformat()
    text = f"Policy: {shown.policy}, judged on {shown.verdict.episodes:,} episodes on {day}. "
    if shown.before == 0:
        return text + "This was the first look at these held-out episodes."
    times = "once" if shown.before == 1 else f"{shown.before:,} times"
    return text + (
        f"These held-out episodes were judged {times} before, so the interval of the difference is stricter: it has a "
        f"level of {percent(shown.verdict.level)}."
    )


def _together(shown: SavedVerdict) -> str:
    """The table of the policies that were judged together with the headline's policy."""
    table_of_policies = shown.together
    if table_of_policies is None or len(table_of_policies[1]) < 2:
        return ""
    level, rows = table_of_policies
    cells = [
        [name, decision, _plain(middle), f"{_plain(low)} to {_plain(high)}"]
        for name, decision, middle, low, high in rows
    ]
    head = ("policy", "decision", "difference from the logger", f"interval, {percent(level)} for all together")
    mine = [place for place, row in enumerate(rows) if row[0] == shown.verdict.context.get("name")]
    return table(head, cells, f"{len(rows):,} policies judged together on these episodes", named=True, marked=mine)


def _disagreement(run: SavedRun) -> str:
    """A warning if the newest verdicts on several policies of the run differ."""
    newest = {one.policy: one.verdict.decision for one in reversed(run.verdicts)}
    if len(set(newest.values())) < 2:
        return ""
    decisions = "; ".join(f"{name}: {decision}" for name, decision in sorted(newest.items()))
    text = f"The policies of this run have different verdicts. {decisions}."
    return f'<article class="warning">{paragraph(text)}</article>'


def risk_of_verdict(verdict: Verdict) -> str:
    """The part, or the reason for its absence; empty for old verdicts without distributions."""
    if verdict.risk is None:
        if verdict.risk_reason is None:
            return ""
        return heading("Worst episodes") + paragraph(f"No distribution of returns: {verdict.risk_reason}.", "soft")
    risk = verdict.risk
    return heading("Worst episodes") + with_picture(bullets(risk.sentences) + _tail_numbers(risk), _distribution(risk))


def _distribution(risk: Risk) -> str:
    """Both distribution functions as step functions with their bands."""
    drawn = [
        _step_curve("policy", 0, risk.points, risk.policy),
        _step_curve("logger", 1, risk.points, risk.logger, dashed=True),
    ]
    cvar = risk.cvar
    title = (
        f"Share of episodes with at most each return, from {risk.lowest:.4g} to {risk.highest:.4g}, policy and logger; "
        f"CVaR {_span(cvar.policy)} and {_span(cvar.logger)}"
    )
    explanation = (
        f"Share of episodes that earn at most each return: a curve further to the right is better. The bands hold "
        f"simultaneously at all returns, with {100 * risk.level:.4g} % confidence."
    )
    keys = legend([("c0", "policy"), ("c1", "logger (dashed)")])
    return figure("Distribution of returns", curves(title, drawn) + keys, explanation)


def _step_curve(name: str, colour: int, points: Values, band: Band, dashed: bool = False) -> Curve:
    """A distribution function as steps at its points, from 0."""
    across = np.repeat(points, 2)
    low, middle, high = (np.append(0.0, np.repeat(part, 2)[:-1]) for part in (band.low, band.estimate, band.high))
    return Curve(name, colour, across, middle, low, high, middle[None], dashed)


def _tail_numbers(risk: Risk) -> str:
    rows = [_compared_cells(f"mean of the worst {100 * risk.alpha:.4g} % (CVaR)", risk.cvar)]
    if risk.probability is not None and risk.bad_outcome is not None:
        rows.append(_compared_cells(f"probability of {risk.bad_outcome:.4g} or less", risk.probability))
    rows += [
        _compared_cells(f"{100 * share:.4g} % of episodes earn at most", compared) for share, compared in risk.quantiles
    ]
    head = ("return", "policy", "logger", "difference")
    return table(head, rows, "Worst episodes and quantiles, with simultaneous intervals", named=True)


def _compared_cells(name: str, compared: Compared) -> list[str]:
    return [name, *(_span(interval) for interval in compared)]


def _span(interval: Interval) -> str:
    return f"{interval.estimate:.4g} ({interval.low:.4g} to {interval.high:.4g})"


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
    rows = list(verdict.estimates)
    reaches = [
        Reach(row.name, row.interval, "c0" if row.name == verdict.deciding else "log", row.name == verdict.deciding)
        for row in rows
    ]
    reaches.append(Reach("logger, as recorded", verdict.logger, "c1", strong=True))
    title = "Estimated mean returns with intervals: " + "; ".join(f"{r.name} {_between(r.interval)}" for r in reaches)
    text = f"{verdict.deciding} decides. The line is the logger's mean return; arrows point to ends outside the chart."
    logger = verdict.logger.estimate
    picture = figure("Mean return, estimated", intervals(title, reaches, logger if np.isfinite(logger) else None), text)
    marked = [place for place, row in enumerate(rows) if row.name == verdict.deciding]
    if not rows:
        return paragraph("No estimate was computed; see the reasons of the verdict.") + _context(verdict)
    size = f"{_plain(verdict.support.effective_sample_size)} of {verdict.support.episodes:,}"
    meaning = (
        f"Effective sample size {size}: weighted for this policy, the log is as informative as that many episodes made "
        "by the policy."
    )
    wide = table(_HEAD, map(_cells, rows), "Estimators, their estimates and their support", marked=marked, named=True)
    pictures = grid([picture, _weights(saved)], broad=True)
    return pictures + paragraph(meaning) + wide + _context(verdict)


def _context(verdict: Verdict) -> str:
    facts = {name: value for name, value in verdict.context.items() if name != "together"}  # a table of its own
    pairs = ((name, plain(value)) for name, value in _flat(facts))
    return heading("How it was judged") + definitions(pairs, tight=True)


_HEAD = (
    "estimator", "estimate", "interval", "method", "effective sample size", "largest weight", "mean weight", "Pareto k",
    "clipped", "unsupported mass", "propensities", "note",
)  # fmt: skip


def _cells(row: Estimate) -> list[str]:
    support = row.support
    mass = "unknown" if support.unsupported_mass is None else _share(support.unsupported_mass)
    return [
        row.name, _plain(row.estimate), f"{_plain(row.low)} to {_plain(row.high)}",
        f"{row.method}, {percent(row.level)}",
        f"{_plain(support.effective_sample_size)} of {support.episodes:,}", _share(support.largest_weight),
        f"{_plain(support.mean_weight)} ± {_plain(support.mean_weight_error)}", _plain(support.pareto_k),
        _share(support.clipped_share), mass, "estimated" if row.estimated else "recorded", row.note,
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
    labels = [(power, f"{10**power:.3g}") for power in ticks]
    title = f"Histogram of episode weights from {10**low:.3g} to {10**high:.3g} on a logarithmic axis; {zeros}"
    text = f"Weight 1: the episode is as likely under the policy as under the logger. Logarithmic axis; {zeros}."
    return figure(name, binned(title, saved.counts, saved.edges, labels), text)


def _flat(context: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in context.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{str(name).replace('_', ' ')}", value


def _between(interval: Interval) -> str:
    return f"{_plain(interval.estimate)} ({_plain(interval.low)} to {_plain(interval.high)})"


def _plain(value: float) -> str:
    if not np.isfinite(value):
        return "no number"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def _share(value: float) -> str:
    return f"{value:.1%}" if np.isfinite(value) else "no number"
