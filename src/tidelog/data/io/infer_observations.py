"""Infer observations and next observations."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tidelog.data.io.column_names import (
    CODED,
    ITEM,
    NEXT,
    is_identity,
    is_observed,
    is_outcome,
    is_person,
    last_word,
    list_names,
    may_be_outcome,
    plain_name,
)
from tidelog.data.io.infer_actions import suggest_rewards
from tidelog.data.io.proposal import Proposal, own_columns, roles_of, unused_columns
from tidelog.data.io.table_fields import FEW_ROWS, Field
from tidelog.data.validation.clusters import name_words
from tidelog.data.validation.leaks import is_after
from tidelog.types import OTHER


def assign_observations(named: Sequence[Field], rows: int, proposal: Proposal) -> None:
    """Assign the columns named as observations, else all unused columns except times and identifiers."""
    outcomes = [one for one in named if is_outcome(one) and one.name not in roles_of(proposal.mapping)]
    last = [one for one in named if one.name in proposal.ends and one not in outcomes]
    readable = [
        one
        for one in named
        if (one.kind not in ("time", "empty", "list", "objects") or (one.width and plain_name(one) not in ITEM))
        and one not in outcomes
        and one not in last
        and not is_after(one.name)
        and one.name not in proposal.actions
        and not (one.consecutive and is_identity(one, rows))  # row numbers
    ]
    if "reward" not in proposal.mapping and (outcomes or last):
        suggest_rewards(outcomes or last, proposal)
    for one in last:
        if "terminated" not in proposal.mapping and one.kind == "flag":
            proposal.hints.append(f"terminated = {json.dumps(one.name, ensure_ascii=False)}")
        values = "is 1 on last rows of episodes only" if one.kind == "flag" else "is 0 except on last rows of episodes"
        what = "an end or an outcome" if one.kind == "flag" else "an outcome"
        proposal.notes.append(f"'{one.name}' {values}: {what}, which is not known before the decision")
    if outcomes:
        named_outcomes = list_names([f"'{one.name}'" for one in outcomes])
        proposal.notes.append(f"{named_outcomes}: named like an outcome, which is not known before the decision")
    later = unused_columns(
        readable, proposal, lambda words, one: bool(NEXT & {*words[:1], *words[-1:]}) and len(words) > 1
    )
    now = [one for one in unused_columns(readable, proposal, lambda words, one: is_observed(words)) if one not in later]
    if not now:
        left = unused_columns(readable, proposal, lambda words, one: not is_identity(one, rows) and not is_person(one))
        now = [one for one in left if one not in later]
    if "observation" in proposal.own_roles:
        now = own_columns(named, proposal, "observation")
    if now:
        proposal.mapping["observation"] = [one.name for one in now]
        coded = [
            one.name
            for one in now
            if one.kind == "word"
            or (one.kind == "whole number" and last_word(one.name) in CODED and (one.low or 0.0) >= 0)
        ]
        proposal.mapping |= {"categorical": coded} if coded else {}
        _join_rare_labels([one for one in now if one.kind == "word"], proposal)
        doubtful = [f"'{one.name}'" for one in now if may_be_outcome(one)]
        if doubtful and "reward" not in proposal.mapping:
            proposal.notes.append(
                f"{list_names(doubtful)}: an outcome by the name, or known before the decision? Take an outcome out of "
                "`observation`, and name it in `reward` if it is what decisions are for"
            )
        proposal.notes += [
            f"'{one.name}' is read as a label: take it out of `categorical` if it is an amount or an order"
            for one in now
            if one.name in coded and one.kind == "whole number"
        ]
        _following(now, later, proposal)
    _ask_about_endings(named, now, proposal)


def _join_rare_labels(words: Sequence[Field], proposal: Proposal) -> None:
    """Propose one label for rare ones, where they have enough rows together and others are frequent."""
    joined = [one for one in words if one.rare_rows >= FEW_ROWS and one.rare < one.unique]
    if joined:
        proposal.mapping["other"] = {one.name: FEW_ROWS for one in joined}
        listed = list_names([f"{one.rare:,} of {one.unique:,} labels of '{one.name}' ({one.rare_rows:,} rows)"
                             for one in joined])  # fmt: skip
        proposal.notes.append(
            f"{listed} are in fewer than {FEW_ROWS} rows each: they are learnt as one, '{OTHER}', as which labels that "
            "the log does not have count, too; drop `other` to keep them apart"
        )


def _ask_about_endings(named: Sequence[Field], now: Sequence[Field], proposal: Proposal) -> None:
    """Note columns that are named as from after the decision, and those whose names end as the reward's does."""
    roles = roles_of(proposal.mapping)
    after = [f"'{one.name}'" for one in named if is_after(one.name) and one.name not in roles]
    if after:
        proposal.notes.append(
            f"{list_names(after)}: named like what follows the decision; add to `observation` what is known before it"
        )
    reward = proposal.mapping.get("reward")
    endings = {last_word(name) for name in ([reward] if isinstance(reward, str) else reward or [])
               if len(name_words(name)) > 1}  # fmt: skip
    alike = [f"'{one.name}'" for one in now if last_word(one.name) in endings and len(name_words(one.name)) > 1]
    if alike:
        proposal.notes.append(
            f"{list_names(alike)}: the name ends like the reward's; known before the decision, or recorded with the "
            "reward? Take what is not known before out of `observation`"
        )


def _following(now: Sequence[Field], later: Sequence[Field], proposal: Proposal) -> None:
    next_columns = {"_".join(word for word in name_words(one.name) if word not in NEXT): one.name for one in later}
    partners = [next_columns.get(plain_name(one)) for one in now]
    if all(partners):
        proposal.mapping["next_observation"] = partners
    elif later:
        missing = [one.name for one, partner in zip(now, partners, strict=True) if not partner]
        proposal.notes.append(f"next observations are not used: {list_names(missing)} has no next column")
