"""A model card of a policy in Markdown: its verdict, its observations and actions, its data, and its limits."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog._text import three_digits
from tidelog.algorithms.hyperparameters import to_config
from tidelog.algorithms.names import algorithm_name
from tidelog.runtime.way_of_acting import DOES, verdict_line
from tidelog.types import Continuous, Spec, in_words

VERDICT_LIMITS = (
    "The verdict is an estimate from logged decisions, not an experiment; its interval has the stated level only if "
    "its assumptions hold, above all that the log has every reason for its decisions.",
    "It holds for this way of acting, and for cases as those of the log. It says nothing about another population, "
    "another time, or a world that answers to the policy itself.",
)
NO_VERDICT = (
    "Nobody has judged this policy in this way: do not use it before `tidelog judge` says whether it is better than "
    "the logged decisions.",
)


def model_card(policy: Any, title: str, facts: Mapping[str, str] | None = None, license: str | None = None) -> str:
    """Return the model card of a policy, with the facts of its log if there are any.

    Names of the log are escaped: a column name cannot write markup.
    """
    algorithm, verdict = algorithm_name(policy.algorithm), policy.verdict
    head = {
        "library_name": "tidelog",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["tidelog", "offline-reinforcement-learning", algorithm],
        **({} if license is None else {"license": license}),
    }
    parts = [
        "---\n" + "\n".join(f"{name}: {json.dumps(value)}" for name, value in head.items()) + "\n---",
        f"# {_escaped(title)}",
        f"A policy of {_escaped(algorithm)} that {DOES[policy.acting or 'mode']}, learnt from logged decisions.",
        f"**{_escaped(verdict_line(verdict))}**",
        "## Use\n\n```python\nimport tidelog as tl\n\n"
        f"policy = tl.load_policy({json.dumps(f'hf://{title}')})\naction = policy(observation)\n```",
        "## Verdict\n\n" + (_rows(_verdict(verdict)) if verdict else NO_VERDICT[0]),
        "## Observations and actions\n\n" + _rows(_spec(policy.spec)),
        "## Data\n\n" + _rows(_data(policy, facts)),
        "## Limits\n\n" + "\n".join(f"- {_escaped(limit)}" for limit in _limits(policy)),
        "## Settings\n\n" + _rows(_settings(policy)),
    ]
    return "\n\n".join(parts) + "\n"


def _verdict(verdict: Mapping[str, Any]) -> dict[str, str]:
    numbers = [verdict[name] for name in ("difference", "low", "high")]
    number = "unknown: the log does not support a number"
    if verdict["decision"] != "unsupported" and None not in numbers:
        difference, low, high = (three_digits(one, sign=True) for one in numbers)
        number = f"{difference} ({low} to {high})"
    return {
        "decision": verdict["decision"],
        "what to do": verdict["advice"],
        "difference from the logged decisions": number,
        "level of the interval": f"{100 * verdict['level']:g}%",
        "episodes": f"{verdict['episodes']:,}",
        "judged policy": f"it {DOES[verdict['acting']]}",
        "date": verdict["date"][:10],
        **({"caveat": verdict["caveat"]} if verdict["caveat"] else {}),
    }


def _spec(spec: Spec) -> dict[str, str]:
    leaves = {f"observation: {name}": in_words(leaf) for name, leaf in spec.observation.items()}
    return {**leaves, "action": in_words(spec.action)}


def _data(policy: Any, facts: Mapping[str, str] | None) -> dict[str, str]:
    fingerprint = str(policy.origin.get("data") or "not recorded")
    shown = {name: value for name, value in (facts or {}).items() if name not in ("action", "observation")}
    return {"fingerprint of the log": fingerprint, **shown}


def _limits(policy: Any) -> Sequence[str]:
    limits = [*(VERDICT_LIMITS if policy.verdict else NO_VERDICT), *policy.notes()]
    if policy.verdict and policy.verdict["caveat"]:
        limits.append(f"The verdict depends on this: {policy.verdict['caveat']}.")
    if isinstance(policy.spec.action, Continuous):
        limits.append("Actions are clipped at the bounds of the log.")
    limits.append("A category that the log does not have, and a missing number that it always had, are refused.")
    return limits


def _settings(policy: Any) -> dict[str, str]:
    return {name: json.dumps(value, default=str) for name, value in to_config(policy.algorithm).items()}


def _rows(values: Mapping[str, str]) -> str:
    rows = [f"| {_escaped(name)} | {_escaped(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _escaped(text: str) -> str:
    """Return text without markup of Markdown or HTML, in one line."""
    plain = html.escape(" ".join(str(text).split()), quote=False)
    return "".join(f"\\{one}" if one in "\\`*_[]|#" else one for one in plain)
