"""Infer actions with their masks, and rewards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from tidelog.data.io.column_names import (
    ACTION,
    FEW_CODES,
    ITEM,
    NEXT,
    is_outcome,
    list_names,
    names_interactions,
    plain_name,
)
from tidelog.data.io.proposal import Proposal, own_columns, roles_of, unused_columns
from tidelog.data.io.table_fields import NUMERIC, Field
from tidelog.data.validation.clusters import name_words

_LARGEST = 3e38
_WIDE = 10
_LIST = re.compile(r"\w\s*[,;|]\s*\w|^\[.*\]$|^\(.*\)$")  # names of allowed actions in one cell
_MASK = {"mask", "allowed", "available", "legal", "admissible", "feasible", "valid", "possible"}
_MOST_ACTIONS = 100  # different values of a column
_DEPENDS, _FREE = 0.5, 0.1  # shares of the variance of propensities
_FEW_WORDS = 20  # actions
_MOSTLY = 0.5  # of the rows


def assign_masks(named: Sequence[Field], proposal: Proposal) -> None:
    """Assign the allowed actions of a row, and of the next one."""

    def allowed(words: list[str], one: Field) -> bool:
        named = one.kind == "word" and all(_LIST.search(example) for example in one.examples)
        return bool(_MASK & set(words)) and (one.kind in ("flag", "list") or named)

    masks = unused_columns(named, proposal, allowed)
    later = [one for one in masks if NEXT & set(name_words(one.name))]
    now = [one for one in masks if one not in later]
    for role, several in (("action_mask", now), ("next_action_mask", later if now else [])):
        if several:
            proposal.mapping[role] = several[0].name if len(several) == 1 else [one.name for one in several]


def assign_actions(named: Sequence[Field], weighed: Callable[[str, str], float], proposal: Proposal) -> None:
    """Assign the action by its name, else by the probabilities of the logged actions."""

    def acted(words: list[str], one: Field) -> bool:
        numbered = len(words) == 2 and words[0] in ("action", "actions", "act", "control", "a") and words[1].isdigit()
        is_set = not {"setpoint", "setpoints"}.isdisjoint(words) or "_set_point" in f"_{'_'.join(words)}"
        return (numbered or is_set) and one.kind in NUMERIC

    if "action" in proposal.own_roles:
        _declare(own_columns(named, proposal, "action"), proposal)
        return
    several = unused_columns(named, proposal, acted)
    called = [one for one in unused_columns(named, proposal, lambda words, one: "_".join(words) in ACTION)
              if one.kind in ("word", *NUMERIC) or (one.width and plain_name(one) not in ITEM)]  # fmt: skip
    called.sort(key=lambda one: ACTION.index(plain_name(one)))
    if called:
        proposal.mapping["action"] = called[0].name
        _declare(called[:1], proposal)
    elif several:
        proposal.mapping["action"] = [one.name for one in several]
        _declare(several, proposal)
    elif isinstance(proposal.mapping.get("propensity"), str):
        _by_propensity(named, weighed, proposal.mapping["propensity"], proposal)


def _declare(several: Sequence[Field], proposal: Proposal) -> None:
    """Declare the number of actions, or their bounds, from the values of the columns of the action."""
    if not proposal.own_roles.isdisjoint(("actions", "bounds")):
        return
    if len(several) == 1:
        _declare_one(several[0], proposal)
    elif several and all(
        one.kind in ("flag", "whole number") and not one.words and (one.low or 0.0) >= 0 and one.unique <= FEW_CODES
        for one in several
    ):
        proposal.mapping["actions"] = [2 if one.kind == "flag" else int(one.high or 0.0) + 1 for one in several]
        note = "several columns of whole numbers are read as choices: change `actions`, or set `bounds`"
        proposal.notes.append(note)


def _by_propensity(
    named: Sequence[Field], weighed: Callable[[str, str], float], propensity: str, proposal: Proposal
) -> None:
    """Assign the action to the one column whose values are as frequent as the probabilities of the actions say.

    Of several, the one on which the probabilities depend.
    """
    kinds = ("word", "flag", "whole number")
    left = [one for one in unused_columns(named, proposal, lambda words, one: one.kind in kinds)
            if not one.empty and 2 <= one.unique <= _MOST_ACTIONS]  # fmt: skip
    shares = {one.name: weighed(one.name, propensity) for one in left if not is_outcome(one)}
    fitting = sorted((one for one in left if shares.get(one.name, -1.0) >= 0), key=lambda one: -shares[one.name])
    if len(fitting) == 1 or (fitting and shares[fitting[0].name] >= _DEPENDS > _FREE >= shares[fitting[1].name]):
        proposal.mapping["action"] = fitting[0].name
        proposal.notes.append(
            f"'{fitting[0].name}' is read as the action: its values are as frequent as '{propensity}' says; change "
            "`action` if wrong"
        )
        _declare(fitting[:1], proposal)


def _declare_one(one: Field, proposal: Proposal) -> None:
    """Note the logged range of the action; whole numbers with many gaps are amounts, not choices."""
    low, high = one.low or 0.0, 1.0 if one.kind == "flag" else one.high or 0.0
    amounts = one.kind == "whole number" and (low < 0 or high + 1 > max(_WIDE * one.unique, 100))
    amounts = amounts and max(-low, high) < _LARGEST
    if one.kind in ("word", "list") or one.words:
        return
    if one.kind == "number" or amounts:
        limits = [low, high]
        (proposal.mapping if amounts else {})["bounds"] = limits
        proposal.hints += [] if amounts else [f"bounds = {limits}   # the logged range; change it if more is possible"]
        proposal.notes.append(f"'{one.name}' is read as an amount from {low:g} to {high:g}: change `bounds` if wrong")
    elif low == 1 < high and _number_of_flags(proposal) in (None, high):
        if high <= _FEW_WORDS:  # else they are inferred
            proposal.mapping["vocabularies"] = {one.name: [str(code) for code in range(1, int(high) + 1)]}
        proposal.notes.append(
            f"'{one.name}' is read as one of {int(high)} actions, codes from 1: set `actions = {int(high) + 1}` "
            "instead if there is a code 0 that was never logged"
        )
    elif "action_mask" not in proposal.mapping and high < _LARGEST:
        proposal.mapping["actions"] = int(high) + 1
        proposal.notes.append(
            f"'{one.name}' is read as one of {int(high) + 1} actions, codes from 0; logged are {int(low)} to "
            f"{int(high)}: change `actions` if wrong"
        )


def _number_of_flags(proposal: Proposal) -> int | None:
    """The number of columns of the action mask; None without one, 0 for one column of lists."""
    mask = proposal.mapping.get("action_mask")
    return mask if mask is None else len(mask) if isinstance(mask, list) else 0


def assign_by_values(
    named: Sequence[Field],
    rows: int,
    nested: Callable[[str, str], bool],
    ends: Callable[[str, str | None, str], float],
    proposal: Proposal,
) -> None:
    """Propose action and reward of a table with episodes by values alone, where no name says the action.

    The action is the one column of words that changes within
    episodes, or else the one amount that is mostly 0, such as a dose. The reward is 1 on some last rows alone. Tables
    with users, items or kinds of event may be interactions, and get no proposal.
    """
    episode = proposal.mapping.get("episode")
    if episode is None or names_interactions(named):
        return
    used = roles_of(proposal.mapping)
    left = [one for one in named if one.name not in used and not one.empty and not is_outcome(one)]
    changing = [one for one in left if one.unique > 1 and not nested(episode, one.name)]
    step = proposal.mapping.get("step")
    if "reward" not in proposal.mapping:
        final = [one for one in changing if one.kind == "flag" and ends(episode, step, one.name)]
        if len(final) == 1:
            proposal.mapping["reward"] = final[0].name
            note = "is 1 on last rows of episodes only and is read as the reward: change `reward` if wrong"
            proposal.notes.append(f"'{final[0].name}' {note}")
            changing.remove(final[0])
    if "action" in proposal.own_roles:
        return
    changing = [one for one in changing if one.name not in proposal.ends]  # outcomes
    words = [one for one in changing if one.kind == "word" and one.unique <= _FEW_WORDS]
    amounts = [one for one in changing if one.kind in ("whole number", "number") and one.unique > 2
               and (one.low or 0.0) >= 0 and one.zeros >= _MOSTLY * rows]  # fmt: skip
    if len(words) == 1:
        proposal.mapping["action"] = words[0].name
        proposal.notes.append(
            f"'{words[0].name}' is read as the action, because no other words change within episodes: change `action` "
            "if wrong"
        )
    elif len(amounts) == 1 and not words:
        one = amounts[0]
        proposal.mapping |= {"action": one.name, "bounds": [0.0, one.high]}
        proposal.notes.append(
            f"'{one.name}' is 0 in {one.zeros / rows:.0%} of rows and is read as the action, a dose from 0 to "
            f"{one.high:g}: change `action` or `bounds` if wrong; for a few levels instead of an amount, add a column "
            f"of words to the table, such as none, up to {(one.high or 0.0) / 2:g}, more"
        )
    elif words or amounts:
        several = [one.name for one in (words or amounts)]
        proposal.hints.append(f"action = {json.dumps(several[0], ensure_ascii=False)}   # or {list_names(several[1:])}")
        proposal.actions = several
        note = (
            "any may be the action; name it in `action`, and the others in `observation` if they were known before it"
        )
        proposal.notes.append(f"{list_names(several)}: {note}")


def suggest_rewards(outcomes: Sequence[Field], proposal: Proposal) -> None:
    """Suggest the outcomes as rewards; numbers for the words of one, and weights of several."""
    words = next((one for one in outcomes if one.kind == "word"), None)
    rewards = [one.name for one in outcomes if one.kind != "word" or one is words]
    proposal.hints.append(f"reward = {json.dumps(rewards if len(rewards) > 1 else rewards[0], ensure_ascii=False)}")
    if len(rewards) > 1:
        ones = ", ".join(["1.0"] * len(rewards))
        proposal.hints.append(f"reward_weights = [{ones}]   # with your numbers, below 0 for costs")
    if words is not None:
        several = [*sorted(words.examples), *[""] * bool(words.empty)]
        listed = ", ".join(f"{json.dumps(word, ensure_ascii=False)} = 0.0" for word in several)
        more = ", ..." if words.unique > len(words.examples) else ""
        proposal.hints.append(f"reward_values = {{ {listed}{more} }}   # with your numbers")
