"""Infer the roles of the columns of a table from their names and values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog.data.io.column_names import is_identity, is_person, last_word, list_names, numbers_rows
from tidelog.data.io.infer_actions import assign_actions, assign_by_values, assign_masks
from tidelog.data.io.infer_episodes import assign_cluster, assign_single_roles, assign_step
from tidelog.data.io.infer_interactions import detect_interactions
from tidelog.data.io.infer_observations import assign_observations
from tidelog.data.io.proposal import Proposal, roles_of
from tidelog.data.io.table_fields import Field
from tidelog.data.validation.clusters import name_words

_RULES = 4  # columns that each have a rule of their own


def infer_columns(
    fields: Sequence[Field],
    rows: int,
    nested: Callable[[str, str], bool] = lambda inner, outer: True,
    ends: Callable[[str, str | None, str], float] = lambda episode, step, column: 0.0,
    repeats: Callable[[str, str], int] = lambda episode, step: 0,
    weighed: Callable[[str, str], float] = lambda action, propensity: -1.0,
    counts: Callable[[str, str], bool] = lambda episode, column: False,
    own_roles: Mapping[str, Any] | None = None,
) -> Proposal:
    """Infer a mapping from names and values; the notes list unused, undeclared and unclear columns.

    `nested(episode, column)` says whether a column has one value in each episode. `ends(episode, step, flag)` is the
    share of episodes whose last row has a flag, or a number other than 0, that no other row has; 0 for other columns.
    `repeats(episode, step)` is the number of rows that repeat a step of their episode. `weighed(action, propensity)` is
    the share of the variance of propensities that a column explains; below 0 where its values, weighted by 1 /
    propensity, are not as frequent as those of logged actions. `counts(episode, column)` says whether a column counts
    the rows of every episode. `own_roles` are roles that somebody named: they are kept, and the others are inferred.
    """
    proposal = Proposal(dict(own_roles or {}), own_roles=frozenset(own_roles or {}))
    kept = roles_of(proposal.mapping)
    named = [one for one in fields if one.name and (one.name in kept or not numbers_rows(one, rows))]
    assign_single_roles(named, rows, ends, repeats, counts, proposal)
    assign_step(named, rows, repeats, counts, proposal)
    assign_cluster(named, rows, nested, proposal)
    assign_masks(named, proposal)
    assign_actions(named, weighed, proposal)
    if "action" not in proposal.mapping or "action" in proposal.own_roles:
        assign_by_values(named, rows, nested, ends, proposal)
    assign_observations(named, rows, proposal)
    if not proposal.own_roles:  # roles of a mapping were named
        detect_interactions(named, proposal)
    _note_the_rest([one for one in fields if one.name], rows, proposal)
    return proposal


def _note_the_rest(named: Sequence[Field], rows: int, proposal: Proposal) -> None:
    used = roles_of(proposal.mapping)
    elsewhere = {*proposal.interactions.values(), *proposal.actions}
    unused = [one for one in named if one.name not in used and one.name not in elsewhere]
    if unused:
        listed = list_names([f"{one.name}{_why_unused(one, rows)}" for one in unused])
        proposal.notes.append(
            f"not used: {listed}; add to `observation` what was known before the decision; `extra` only keeps columns"
        )
    for one in named:
        if one.words and proposal.mapping.get("reward") == one.name and "reward_values" not in proposal.mapping:
            proposal.mapping["reward_values"] = dict(one.words)
            worth = " and ".join(f"{value:g} for '{word}'" for word, value in one.words)
            proposal.notes.append(f"'{one.name}' is read as a reward of {worth}: change `reward_values` if wrong")
    empty = [one for one in named if one.empty and one.name in used]
    if empty:
        counted = [f"{one.empty:,} in '{one.name}'" for one in empty]
        proposal.notes.append(f"empty cells are errors unless the mapping has a rule for them: {list_names(counted)}")
    if any(used[one.name] == "reward" for one in empty):
        proposal.hints.append('reward_values = { "" = 0.0 }   # if rows without a reward earn nothing')
    needed = [one.name for one in empty if used[one.name] in ("action", "reward", "propensity")]
    if needed:
        proposal.hints.append(
            f"drop_rows_without = {json.dumps(needed, ensure_ascii=False)}   # if they are missing by chance"
        )
    observed = [one for one in empty if used[one.name] == "observation"]
    if observed:
        rules = ", ".join(f'{json.dumps(one.name, ensure_ascii=False)} = "mean+flag"' for one in observed[:_RULES])
        each = f"missing = {{ {rules} }}" if len(observed) <= _RULES else 'missing = "mean+flag"'
        proposal.hints += [] if "missing" in proposal.mapping else [f'{each}   # or "forward": the last known value']
    done = proposal.mapping.get("terminated")
    if isinstance(done, str) and last_word(done) in ("done", "dones") and "truncated" not in proposal.mapping:
        proposal.notes.append(f"'{done}' often also marks time limits: time limits need a separate column `truncated`")
    logarithms = [one.name for one in named if "".join(name_words(one.name)).endswith(("logp", "logprob", "logpi"))]
    if logarithms:
        proposal.notes.append(f"{list_names(logarithms)}: a log-probability; `propensity` needs the probability itself")


def _why_unused(one: Field, rows: int) -> str:
    """Why a column has no role, in brackets, where its kind or its values say so."""
    kinds = {
        "empty": f"only {', '.join(one.examples)}: an empty cell" if one.examples else "has no value",
        "time": "a time",
        "list": "lists of numbers" if one.width else "lists of different lengths, or of other values",
        "objects": "lists of objects: `explode` in the mapping makes each a row of JSON lines; else use explode and "
        "unnest of Polars",
    }
    kinds |= {one.kind: "persons: name it in `cluster`"} if is_person(one) and 2 * one.unique <= rows else {}
    if (one.consecutive and is_identity(one, rows)) or numbers_rows(one, rows):
        return " (row numbers)"
    why = kinds.get(one.kind, "an identifier: nearly every row has its own" if is_identity(one, rows) else "")
    return f" ({why})" if why else ""
