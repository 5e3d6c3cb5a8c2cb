"""Infer the roles of a table of interactions: who took which item when."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tidelog.data.io.column_names import EPISODE, EVENT, FEW_CODES, ITEM, RATING, SESSION, USER, plain_name
from tidelog.data.io.proposal import Proposal
from tidelog.data.io.table_fields import Field

_EXTREME = 100  # largest ratio of the largest reward to the 99% quantile


def detect_interactions(named: Sequence[Field], proposal: Proposal) -> None:
    """Detect tables of interactions (users and items, without propensities and masks)."""
    if "propensity" in proposal.mapping or "action_mask" in proposal.mapping:
        return
    kinds = ("whole number", "word", "flag")
    users = [one for one in named if plain_name(one) in USER and one.kind in kinds]
    items = [one for one in named if plain_name(one) in ITEM]
    if not users and items and "time" in proposal.mapping and "reward" not in proposal.mapping:
        users = [one for one in named if plain_name(one) in SESSION and one.kind in kinds]
    guessed = _items_by_content(named, proposal) if users and not items else []
    items = items or guessed
    if not (users and items):
        return
    roles = {"user": users[0].name, "item": items[0].name}
    sessions = [one.name for one in named if plain_name(one) in SESSION]
    roles |= {"session": sessions[0]} if sessions and sessions[0] != users[0].name and items[0].kind != "list" else {}
    dated = [one.name for one in named if one.kind == "time"]
    time = proposal.mapping.get("time") or (dated[0] if dated else proposal.mapping.get("step"))
    roles |= {"time": time} if time else {}
    unfit = [(one, _unfit_reward(one)) for one in named if plain_name(one) in RATING]
    for role, called in (
        ("rating", [one.name for one, reason in unfit if reason is None]),
        (
            "event",
            [one.name for kinds_of_event in (EVENT, ("type",)) for one in named if plain_name(one) in kinds_of_event],
        ),
    ):
        roles |= dict.fromkeys([role], called[0]) if called else {}
    proposal.interactions = roles
    listed = ", ".join(f"{role} '{name}'" for role, name in roles.items())
    about = proposal.interaction_notes
    about.append(f"this looks like an interaction log ({listed}): it holds who chose what, not what was "
                         "seen, offered or declined; a mapping makes users episodes and items actions")  # fmt: skip
    if guessed:
        about.append(f"'{items[0].name}' is taken as the item, because no other column has many values that "
                                 "repeat; `--item` names another")  # fmt: skip
    if items[0].kind == "list":
        about.append(f"'{items[0].name}' holds several items per row: split them, one item per row")
    about += _rewards_of_events(named, roles)
    if "rating" not in roles:
        about += [f"'{one.name}' is not proposed as reward: {reason}" for one, reason in unfit if reason]
    proposal.notes[:0] = about


def _items_by_content(named: Sequence[Field], proposal: Proposal) -> list[Field]:
    """Return the one column whose values repeat, and are too many for a feature, in sessions or events of users.

    Empty if there are several such columns, an action, or no column of sessions or of kinds of event.
    """
    names = {plain_name(one) for one in named}
    if "action" in proposal.mapping or names.isdisjoint((*SESSION, *EVENT)):
        return []
    other = (*EPISODE, *USER, *EVENT, *RATING)
    used = {proposal.mapping.get(role) for role in ("time", "step", "reward")}
    fitting = [one for one in named if one.kind in ("whole number", "word") and not one.empty
               and one.unique > FEW_CODES and plain_name(one) not in other and one.name not in used]  # fmt: skip
    return fitting if len(fitting) == 1 else []


def _unfit_reward(one: Field) -> str | None:
    """The reason why a column of ratings or quantities should not be the reward as it is; None if it can be."""
    if one.negative:
        returned = "returned goods? Their rows still count as events: remove them"
        return f"{one.negative:,} values are negative, down to {one.low:,.10g} ({returned})"
    if one.usual and one.high is not None and one.high > _EXTREME * one.usual:
        return f"its largest value is {one.high:,.10g}, and 99% of those other than 0 are at most {one.usual:,.5g}"
    return None


def _rewards_of_events(named: Sequence[Field], roles: dict[str, str]) -> list[str]:
    """Return a note on how to set the reward of each kind of event, where no column holds rewards."""
    kinds = [one for one in named if one.name == roles.get("event")]
    if not kinds or "rating" in roles:
        return []
    more = " ..." if kinds[0].unique > len(kinds[0].examples) else ""
    pairs = " ".join(shlex.quote(f"{kind}=1") for kind in kinds[0].examples)
    return [f"every event has reward 1; `--reward {pairs}{more}`, with your numbers, sets the reward of each kind of "
            f"'{kinds[0].name}'"]  # fmt: skip
