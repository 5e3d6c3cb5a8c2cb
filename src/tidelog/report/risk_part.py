"""The distribution of returns in the report: policy and logger with bands, CVaR, quantiles, and sentences."""

from __future__ import annotations

import numpy as np

from tidelog.ope.estimators.risk import Band, Compared, Risk
from tidelog.ope.verdict.results import Verdict
from tidelog.policies.statistics import Interval
from tidelog.report.axes import Values
from tidelog.report.charts import Curve, curves
from tidelog.report.frame import with_picture, bullets, figure, heading, legend, paragraph, table


def risk_of_verdict(verdict: Verdict) -> str:
    """The part, or the reason for its absence; empty for old verdicts without distributions."""
    if verdict.risk is None:
        if verdict.risk_reason is None:
            return ""
        return heading("Worst episodes") + paragraph(f"No distribution of returns: {verdict.risk_reason}.", "soft")
    risk = verdict.risk
    return heading("Worst episodes") + with_picture(bullets(risk.sentences) + _numbers(risk), _picture(risk))


def _picture(risk: Risk) -> str:
    """Both distribution functions as step functions with their bands."""
    drawn = [_steps("policy", 0, risk.points, risk.policy), _steps("logger", 1, risk.points, risk.logger, dashed=True)]
    cvar = risk.cvar
    title = (
        f"Share of episodes with at most each return, from {risk.lowest:.4g} to {risk.highest:.4g}, policy and logger; "
        f"CVaR {_between(cvar.policy)} and {_between(cvar.logger)}"
    )
    explanation = (
        f"Share of episodes that earn at most each return: a curve further to the right is better. The bands hold "
        f"simultaneously at all returns, with {100 * risk.level:.4g} % confidence."
    )
    keys = legend([("c0", "policy"), ("c1", "logger (dashed)")])
    return figure("Distribution of returns", curves(title, drawn) + keys, explanation)


def _steps(name: str, colour: int, points: Values, band: Band, dashed: bool = False) -> Curve:
    """A distribution function as steps at its points, from 0."""
    across = np.repeat(points, 2)
    low, middle, high = (np.append(0.0, np.repeat(part, 2)[:-1]) for part in (band.low, band.estimate, band.high))
    return Curve(name, colour, across, middle, low, high, middle[None], dashed)


def _numbers(risk: Risk) -> str:
    rows = [_cells(f"mean of the worst {100 * risk.alpha:.4g} % (CVaR)", risk.cvar)]
    if risk.probability is not None and risk.bad_outcome is not None:
        rows.append(_cells(f"probability of {risk.bad_outcome:.4g} or less", risk.probability))
    rows += [_cells(f"{100 * share:.4g} % of episodes earn at most", compared) for share, compared in risk.quantiles]
    head = ("return", "policy", "logger", "difference")
    return table(head, rows, "Worst episodes and quantiles, with simultaneous intervals", named=True)


def _cells(name: str, compared: Compared) -> list[str]:
    return [name, *(_between(interval) for interval in compared)]


def _between(interval: Interval) -> str:
    return f"{interval.estimate:.4g} ({interval.low:.4g} to {interval.high:.4g})"
