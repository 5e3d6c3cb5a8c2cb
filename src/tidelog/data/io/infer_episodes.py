"""Infer episodes, steps, ends and clusters, and the other roles of one column each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.data.core.ends import LASTS, STARTS
from tidelog.data.io.column_names import (
    ACTION,
    SINGLE,
    USER,
    counts_rows,
    is_outcome,
    list_names,
    names_interactions,
    plain_name,
)
from tidelog.data.io.proposal import Proposal, roles_of
from tidelog.data.io.table_fields import NUMERIC, Field
from tidelog.data.validation.clusters import LEAST_REPEATS, LEAST_VALUES, kind_of, name_words

_FEWEST_EPISODES = 10
_MOST_COPIES = 0.02  # share of rows; more rows with the same step are no copies
_MOST_ENDS = 0.5  # share of episodes
_FEWEST_ENDS = 5  # last rows with a flag that no other row has, from which on it is no chance


def assign_single_roles(
    named: Sequence[Field],
    rows: int,
    ends: Callable[[str, str | None, str], float],
    repeats: Callable[[str, str], int],
    counts: Callable[[str, str], bool],
    proposal: Proposal,
) -> None:
    """Assign the roles of one column each."""
    for role, known in SINGLE.items():
        if role in proposal.own_roles:
            continue
        called = [one for one in named if plain_name(one) in known]
        called.sort(key=lambda one: known.index(plain_name(one)))
        fitting = [one for one in called if _fits(role, one, rows) and one.name not in roles_of(proposal.mapping)]
        if fitting:
            proposal.mapping[role] = fitting[0].name
        proposal.notes += [_misfit(role, one) for one in called if not _fits(role, one, rows)]
    times = [one for one in named if one.kind == "time"]
    if "time" not in proposal.mapping and len(times) == 1:
        proposal.mapping["time"] = times[0].name
    _episode_by_time(named, rows, repeats, proposal)
    _episode_by_count(named, rows, counts, proposal)
    _by_content(named, ends, proposal)
    if "episode" not in proposal.mapping:
        one_step = "no column marks which rows belong together: every row is an episode of one step"
        recording = "time" in proposal.mapping and "propensity" not in proposal.mapping
        recording = recording and not names_interactions(named)
        flags = [f"'{one.name}'" for one in named if one.kind == "flag" and one.unique == 2 and (
            plain_name(one) in (*STARTS, *LASTS)
            or one.name in (proposal.mapping.get("terminated"), proposal.mapping.get("truncated")))]  # fmt: skip
        if flags:
            one_step += (
                f", although {list_names(flags)} says where episodes end or begin: number them in a column first"
            )
        elif recording:
            one_step += "; in one long recording, add a column that names the part of each row, such as the day"
        proposal.notes.append(one_step)
        proposal.mapping.setdefault("terminated", True)
    elif not {"terminated", "truncated"} & proposal.mapping.keys():
        proposal.notes.append("no column marks how episodes end: they count as truncated; "
                          "set `terminated = true` if every episode terminated")  # fmt: skip


def _fits(role: str, one: Field, rows: int) -> bool:
    if role == "episode":
        return one.kind in ("flag", "whole number", "word") and (one.unique < rows or rows < 2)
    if role in ("terminated", "truncated"):
        return one.kind == "flag"
    if role == "time":
        return one.kind in ("time", *NUMERIC)
    if role == "propensity" and plain_name(one) in ("p", "mu", "prob", "probability"):
        return one.kind == "flag" or (one.kind == "number" and (one.low or 0.0) >= 0 and (one.high or 0.0) <= 1)
    return one.kind in NUMERIC


def _misfit(role: str, one: Field) -> str:
    if role == "episode":
        return f"'{one.name}' differs in every row or is not an identifier: it cannot mark which rows belong together"
    held = "has no value" if one.kind == "empty" else f"holds {one.kind.removesuffix('s')}s"
    return f"'{one.name}' has the name of a {role}, but {held}"


def _episode_by_time(named: Sequence[Field], rows: int, repeats: Callable[[str, str], int], proposal: Proposal) -> None:
    """Assign the one column with at most one row for each of its values and times, where the times of rows repeat."""
    when = proposal.mapping.get("time")  # a step by its name may be the number of an episode
    times = {one.name: one.unique for one in named}.get(str(when), rows)
    if "episode" in proposal.mapping or 2 * times > rows:
        return
    left = [
        one.name
        for one in named
        if one.name not in roles_of(proposal.mapping)
        and one.kind in ("whole number", "word")
        and not one.empty
        and 2 * one.unique <= rows
        and plain_name(one) not in ACTION
    ]
    found = [name for name in left if not repeats(name, str(when))]
    if len(found) == 1:
        proposal.mapping["episode"] = found[0]
        proposal.notes.append(
            f"rows with the same '{found[0]}' form an episode, because no '{when}' repeats among them: change "
            "`episode` if wrong"
        )


def _episode_by_count(
    named: Sequence[Field], rows: int, counts: Callable[[str, str], bool], proposal: Proposal
) -> None:
    """Assign the one column within whose values another column counts the rows from 0 or 1, with few left out."""
    if "episode" in proposal.mapping or names_interactions(named):
        return
    used = roles_of(proposal.mapping)
    whole = [one for one in named if not one.empty and one.kind in ("flag", "whole number") and one.unique > 1
             and used.get(one.name, "step") == "step"]  # fmt: skip
    steps = [one for one in whole if one.kind == "flag" or counts_rows(one)]
    keys = [one for one in named if one.kind in ("whole number", "word") and not one.empty and one.name not in used]
    pairs = [
        (key, step)
        for key in keys
        for step in steps
        if key is not step and key.unique >= _FEWEST_EPISODES and 2 * key.unique <= rows
        and step.unique <= key.unique <= 2 * rows / step.unique and counts(key.name, step.name)
    ]  # fmt: skip
    if len(pairs) == 1:
        key, step = (one.name for one in pairs[0])
        proposal.mapping |= {"episode": key, "step": step}
        proposal.notes.append(f"'{key}' is read as the episode, because '{step}' counts its rows: change `episode` and "
                              "`step` if wrong")  # fmt: skip


def assign_step(
    named: Sequence[Field],
    rows: int,
    repeats: Callable[[str, str], int],
    counts: Callable[[str, str], bool],
    proposal: Proposal,
) -> None:
    """Drop a step that does not count the rows of an episode; without step and time, assign the column that does."""
    step, episode = proposal.mapping.get("step"), proposal.mapping.get("episode")
    if "step" in proposal.own_roles:
        return
    if step is None:
        time = proposal.mapping.get("time")
        if episode is None or (time is not None and not repeats(episode, time)):
            return
        if "_".join(name_words(episode)) in USER:  # events of users need a time; a count of rows is none
            return
        left = [one for one in named if one.kind == "whole number" and one.name not in roles_of(proposal.mapping)]
        left = [one for one in left if not one.empty and not is_outcome(one)]
        found = [one.name for one in left if counts(episode, one.name)]
        if len(found) == 1:
            proposal.mapping["step"] = found[0]
            proposal.notes.append(
                f"'{found[0]}' counts the rows of each '{episode}' and is read as the step: change `step` if wrong"
            )
        return
    if episode is None:
        del proposal.mapping["step"]
        proposal.notes.append(f"'{step}' is not used as step: no column says which rows form an episode")
        return
    count = repeats(episode, step)
    if not count:
        return
    those = f"{count:,} {'row repeats' if count == 1 else 'rows repeat'} a step of their '{episode}'"
    if count <= _MOST_COPIES * rows:
        proposal.notes.append(f"{those}: remove copied rows, or change `step` if it is no count of rows")
        return
    del proposal.mapping["step"]
    proposal.notes.append(f"'{step}' is not used as step: {those}")


def _by_content(named: Sequence[Field], ends: Callable[[str, str | None, str], float], proposal: Proposal) -> None:
    """Assign the end of episodes and the propensity to the one column whose values show it, whatever its exact name.

    A flag of the last rows of some episodes only may be a reward at their end: it needs a reward elsewhere. An amount
    that is 0 except on such rows is no end.
    """
    left = [one for one in named if one.name not in roles_of(proposal.mapping) and not one.empty]
    episode, step = proposal.mapping.get("episode"), proposal.mapping.get("step")
    least = _MOST_ENDS if "reward" in proposal.mapping else 1.0
    flags = [one for one in left if one.kind == "flag" and one.unique == 2]
    shares = {one.name: ends(episode, step, one.name) for one in flags} if episode is not None else {}
    last = [name for name, share in shares.items() if share >= least]
    amounts = (
        [one for one in left if one.kind in ("whole number", "number") and one.zeros] if episode is not None else []
    )
    shares |= {one.name: ends(str(episode), step, one.name) for one in amounts}
    names_of_columns = {*map(plain_name, named), *ACTION}
    probable = [
        one.name
        for one in left
        if one.kind == "number"
        and 0.0 < (one.low or 0.0) <= (one.high or 0.0) <= 1.0
        and (
            any(word.startswith(("prob", "propens")) for word in name_words(one.name))
            or (name_words(one.name)[:1] == ["p"] and "_".join(name_words(one.name)[1:]) in names_of_columns)  # p(drug)
        )
    ]
    where = {
        "terminated": (last, "is 1 on last rows of episodes only"),
        "propensity": (probable, "is read as the probability of the logged action"),
    }
    for role, (names, why) in where.items():
        if len(names) == 1 and role not in proposal.mapping:
            proposal.mapping[role] = names[0]
            proposal.notes.append(f"'{names[0]}' {why}: change `{role}` if wrong")
    episodes = {one.name: one.unique for one in named}.get(str(episode), 0)
    proposal.ends = [
        name
        for name, share in shares.items()
        if name != proposal.mapping.get("terminated") and share * episodes >= _FEWEST_ENDS
    ]


def assign_cluster(named: Sequence[Field], rows: int, nested: Callable[[str, str], bool], proposal: Proposal) -> None:
    """Assign the first unused column with the name of a person, session or store that repeats over episodes."""
    if "cluster" in proposal.own_roles:
        return
    used = roles_of(proposal.mapping)
    episodes = {one.name: one.unique for one in named}.get(proposal.mapping.get("episode", ""), rows)
    called = [
        one
        for one in named
        if one.name not in used
        and kind_of(one.name) == "group"
        and one.kind in ("whole number", "word")
        and not one.empty
        and LEAST_VALUES <= one.unique <= episodes / LEAST_REPEATS
        and ("episode" not in proposal.mapping or nested(proposal.mapping["episode"], one.name))
    ]
    if called:
        proposal.mapping["cluster"] = called[0].name
        proposal.notes.append(f"episodes with the same '{called[0].name}' form a cluster: change `cluster` if wrong")
    if len(called) > 1:
        others = list_names([one.name for one in called[1:]])
        proposal.notes.append(
            f"{others}: could be clusters too; use the column with the fewest values whose episodes are dependent"
        )
