"""Warnings and notes, which do not make a log unusable: one function per check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

import numpy as np

from tidelog.data import balance  # noqa: F401 (its checks)
from tidelog.data.checks import action_count, action_labels, action_name, clip_finite, first_values
from tidelog.data.declared import DeclarationError, probabilities_of
from tidelog.data.dependence import Labels, candidates, codes_of, constant, day_labels, find_copies, fix_of, kind_of
from tidelog.data.leaks import DecisionRewards, is_after, leak_of
from tidelog.data.raw import Column, Finding, RawLog, Values, check, side_by_side

_FEW_EPISODES = 10
_LARGE = 1e4
_SMALL = 1e-4
_MANY_CATEGORIES = 100
_MANY_ACTIONS = 20
_MOST_ACTIONS = 2**31
_RARE_ROWS = 10
_RARE_SHARE = 0.001
_LONG = 10.0
_ENOUGH = 10
_SAMPLE = 1_000
_ROUNDING = 1e-9
_MOST_CODES = 100_000


@check("duplicated rows", "warning")
def duplicated_rows(raw: RawLog) -> Iterable[Finding]:
    """Rows of a one-step log, or whole episodes, are exact copies of others more often than by chance."""
    copies = find_copies(raw)
    if copies is None:
        return
    units = "rows" if copies.total == raw.rows else "episodes"
    often = f"most repeated {units} occur {copies.often} times"
    found = f"{copies.units:,} of {copies.total:,} {units} are exact copies of earlier ones; {often}"
    advice = f"remove the copies; if such {units} are dependent, set cluster= to the column of their group"
    yield Finding(None, copies.rows, found, f"independent {units}", advice)


@check("possible cluster column", "warning")
def possible_cluster(raw: RawLog) -> Iterable[Finding]:
    """A column looks like clusters of episodes (persons, sessions, stores or days), but is not named as cluster."""
    if raw.cluster is not None or not (raw.unused or raw.extra or raw.time):
        return
    firsts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
    used = {column.name for feature in raw.observation.values() for column in feature.columns}
    used |= {column.name for column in (*(raw.action.columns if raw.action else ()), *(raw.reward or ()))}
    labels = []
    for column in (*raw.unused, *raw.extra):
        kind = kind_of(column.name, is_text=column.vocabulary is not None)
        if kind is None or column.name in used or column.values.ndim != 1 or column.values.dtype.kind not in "iufM":
            continue
        values = raw.order.sort(column.values)
        if constant(values, raw.order.episode, firsts):
            codes, usable = codes_of(values[firsts]), raw.order.sort(column.usable)[firsts]
            codes = codes if usable.all() else np.where(usable, codes, -1)
            labels.append(Labels(column.name, kind, codes, fix_of(column.name)))
    if raw.time is not None and raw.time.usable.all():
        labels += day_labels(raw.time.name, raw.time.values[raw.order.rows[firsts]])
    returns = None  # [E, K] sums of the rewards of each episode; unusable rewards count as 0
    if raw.reward:
        rewards = side_by_side(raw.reward)
        rewards = raw.order.sort(rewards.astype(np.float64) if np.isfinite(rewards).all() else clip_finite(rewards))
        returns = rewards if len(firsts) == raw.rows else np.add.reduceat(rewards, firsts, axis=0)
    actions = None  # [E] discrete actions of a one-step log
    if raw.action is not None and raw.action.kind == "discrete" and len(raw.order.ids) == raw.rows:
        action = raw.action.values[:, 0]
        ordered = raw.order.sort(action if action.dtype.kind in "iu" else np.clip(clip_finite(action), -1, 2**53))
        actions = np.asarray(ordered.astype(np.int64))
    for one in candidates(labels, returns, actions):
        yield Finding(one.name, None, one.found, "independent episodes, or a cluster column", one.fix)


@check("both flags set", "warning")
def both_flags(raw: RawLog) -> Iterable[Finding]:
    """A row is terminated and truncated; terminated wins."""
    if raw.flags.both.any():
        at = raw.order.rows[raw.flags.both]
        advice = "nothing, if the episode terminated there; terminated wins, and there is no bootstrapping"
        yield Finding(None, at, "terminated and truncated on one row", "one of them", advice)


@check("unordered rows", "warning")
def unordered_rows(raw: RawLog) -> Iterable[Finding]:
    """Rows were sorted by episode and step."""
    moved = raw.order.rows != np.arange(raw.rows)
    if moved.any():
        found, expected = "rows out of order, now sorted", "episodes one after another, with increasing steps"
        yield Finding(None, np.flatnonzero(moved), found, expected, "nothing, if episode= and step= are right")


@check("episode in several files", "warning")
def crossed_files(raw: RawLog) -> Iterable[Finding]:
    """Rows of one episode are in several files, and no step or time orders them: the order of the files does."""
    if raw.files is None or raw.episode is None or raw.step is not None or raw.time is not None:
        return
    crossed = raw.files.crossed(raw.order.episode, raw.order.rows)
    if crossed.any():
        found = "episodes that go on in another file"
        expected = "each episode in one file, or a step or time that orders its rows"
        advice = "name the column of the step; if files count their episodes anew, make the identifiers different"
        yield Finding(raw.episode.name, raw.order.rows[crossed], found, expected, advice)


@check("no end flag", "warning")
def no_end_flag(raw: RawLog) -> Iterable[Finding]:
    """An episode ends without either flag; it counts as truncated at its last row."""
    placed = ~raw.unplaced[raw.order.rows]  # a row that cannot be ordered has an error of its own
    if (raw.flags.assumed & placed).any():
        at = raw.order.rows[raw.flags.assumed & placed]
        episodes = len(raw.order.ids) - int(raw.unplaced.sum())
        found = f"{len(at):,} of {_amount(episodes, 'episode')} without a flag at the end; truncated is assumed"
        advice = "set terminated= or truncated=; terminated=True if every episode terminated"
        yield Finding(None, at, found, "terminated or truncated on each last row", advice)


@check("ends without episodes", "warning")
def ends_without_episodes(raw: RawLog) -> Iterable[Finding]:
    """Some rows have an end flag, but no column says which rows form an episode: each is an episode of one step."""
    # transitions with their next observations are no such log
    named = [column for column in (raw.terminated, raw.truncated) if column is not None]
    ended = raw.flags.terminated | (raw.flags.truncated & ~raw.flags.assumed)
    if raw.episode is None and not raw.followed.any() and ended.any() and not ended.all():
        flags = " and ".join(f"'{column.name}'" for column in named)
        found = f"{flags} end {_amount(int(ended.sum()), 'row')} of {raw.rows:,}; each row is an episode of one step"
        fix = f"number the episodes in a column, as the count of earlier rows with {flags} 1, and name it in `episode`"
        yield Finding(None, None, found, "a column of episodes", fix)


@check("no bootstrap target", "warning")
def no_bootstrap_target(raw: RawLog) -> Iterable[Finding]:
    """A truncated last row has no next observation: it is used for cloning and statistics, not for value learning."""
    followed = raw.order.sort(raw.followed)
    unknown = raw.order.last & ~raw.flags.terminated & ~followed & ~raw.unplaced[raw.order.rows]
    if unknown.any():
        found = f"{_amount(int(unknown.sum()), 'row')} for cloning and statistics only, not for value learning"
        advice = "add a next_observation column, or the following row"
        if _rewards_only_in(raw, unknown):
            found += "; every reward other than 0 is in one of them, so value learning sees none"
            advice = f"if nothing followed, name that flag as terminated= (or terminated=True); else {advice}"
        yield Finding(None, raw.order.rows[unknown], found, "the observation after a truncated row", advice)


def _rewards_only_in(raw: RawLog, rows: Values) -> bool:
    """Whether every reward other than 0 is in these rows, which are a mask in the order of the log."""
    if not raw.reward:
        return False
    rewarded = (raw.order.sort(clip_finite(side_by_side(raw.reward))) != 0).any(axis=1)
    return bool(rewarded.any() and not (rewarded & ~rows).any())


@check("terminations ignored", "warning")
def terminations_ignored(raw: RawLog) -> Iterable[Finding]:
    """The mapping counts terminated rows as truncated."""
    if raw.terminations == "ignore" and raw.terminated is not None:
        at = np.flatnonzero((raw.terminated.values == 1) & raw.terminated.usable)
        found = f"terminations='ignore': {len(at):,} terminated flags do not stop bootstrapping"
        yield Finding(
            raw.terminated.name, at, found, "a task of fixed length", "terminations='stop' if terminations are real"
        )


@check("no reward", "note")
def no_reward(raw: RawLog) -> Iterable[Finding]:
    """The mapping names no reward: only behaviour cloning can learn from the log."""
    if raw.reward is None and all(finding.column != "reward" for _, finding in raw.found):
        yield Finding(None, None, "no reward", "a reward, except for cloning", "set reward= if there is one")


@check("constant reward", "warning")
def constant_reward(raw: RawLog) -> Iterable[Finding]:
    """Every reward is the same number."""
    for name, values in _numbers(raw.reward or ()):
        if _constant(values):
            yield Finding(
                name, None, f"every reward is {values[0]:g}", "different rewards", "check the column of reward="
            )


@check("equal episode returns", "warning")
def equal_returns(raw: RawLog) -> Iterable[Finding]:
    """DecisionRewards differ, but every episode of several steps has the same return."""
    count = len(raw.order.ids)
    if raw.episode is None or count < 2:
        return
    starts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
    for column in raw.reward or ():
        rewards = clip_finite(raw.order.sort(column.values)).reshape(raw.rows, -1)
        returns = np.add.reduceat(rewards, starts, axis=0)
        sizes = np.add.reduceat(np.abs(rewards), starts, axis=0).max(axis=0)
        same = np.ptp(returns, axis=0) <= 1e-9 * sizes
        if (same & (np.ptp(rewards, axis=0) > 0)).any():
            found = f"all {count:,} episodes have the return {first_values(returns[0])}"
            advice = "check the reward: with equal returns, only the timing of rewards carries information"
            yield Finding(column.name, None, found, "different returns", advice)


@check("one action only", "warning")
def one_action_only(raw: RawLog) -> Iterable[Finding]:
    """Every action, or every value of one action dimension, is the same."""
    labels = {one.name: one.vocabulary for one in raw.action.columns} if raw.action else {}
    for name, values in _numbers(raw.action.columns if raw.action else ()):
        if _constant(values):
            label = labels.get(name)
            shown = f"{values[0]:g}" if label is None else f"'{label[int(values[0])]}'"
            advice = "check the column of action=; a log with one action cannot show which action is better"
            yield Finding(name, None, f"every action is {shown}", "different actions", advice)


@check("constant observation column", "warning")
def constant_column(raw: RawLog) -> Iterable[Finding]:
    """An observation column is constant."""
    constant = [name for name, values in _observed(raw) if _constant(values)]
    if constant:
        found = f"{len(constant)} of {len(list(_observed(raw)))} columns are constant: {_named(constant)}"
        yield Finding(_named(constant), None, found, "columns that vary", "drop them, or check the export")


@check("duplicated observation columns", "warning")
def duplicated_columns(raw: RawLog) -> Iterable[Finding]:
    """Two observation columns hold the same values in every row."""
    groups: dict[bytes, list[tuple[str, Values]]] = {}
    for name, values in _observed(raw):
        if not _constant(values):
            sample = values[:: max(1, len(values) // _SAMPLE)].astype(np.float64)  # equal for equal columns
            groups.setdefault(sample.tobytes(), []).append((name, values))
    for (original, first), *others in groups.values():
        copies = [name for name, values in others if np.array_equal(values, first)]
        if copies:
            found = f"the same values as in '{original}'"
            yield Finding(_named(copies), None, found, "different columns", "drop the copies")


@check("extreme scale", "warning")
def extreme_scale(raw: RawLog) -> Iterable[Finding]:
    """The largest magnitude of an observation column is above 10,000 or below 0.0001."""
    observed = _observed(raw, codes=False)
    reach = {name: max(-float(one.min()), float(one.max())) if len(one) else 0.0 for name, one in observed}
    large = [name for name, top in reach.items() if top > _LARGE]
    small = [name for name, top in reach.items() if 0 < top < _SMALL]
    for names, size in ((large, f"above {_LARGE:,.0f}"), (small, f"below {_SMALL:g}")):
        if names:
            found, advice = f"columns with magnitudes {size}", "standardise observations (scale=) or choose other units"
            yield Finding(_named(names), None, f"{len(names)} {found}", "magnitudes near 1", advice)


@check("suspicious leak", "warning")
def suspicious_leak(raw: RawLog) -> Iterable[Finding]:
    """An observation column equals the action of the same row, or the reward of the row before."""
    before = np.flatnonzero(~raw.order.last)
    for role, outcome, column in _outcomes(raw):
        for name, values in _whole(one for one in _observed_columns(raw) if one.vocabulary == column.vocabulary):
            if role == "action" and _equal(values, outcome, raw.order.rows, raw.order.rows):
                found = f"the same values as action '{column.name}' of the same row"
                yield Finding(name, None, found, KNOWN_BEFORE, "drop the column")
            elif role == "reward" and _equal(values, outcome, raw.order.rows[1:], raw.order.rows, before):
                found = f"reward '{column.name}' of the row before"
                advice = "drop the column, unless the policy has it in time"
                yield Finding(name, None, found, KNOWN_BEFORE, advice)


@check("outcome among observations", "warning")
def outcome_among_observations(raw: RawLog) -> Iterable[Finding]:
    """An observation column is the reward of the same row, tells it, or is named as from after the decision."""
    same = {}
    for role, outcome, column in _outcomes(raw):
        for name, values in _whole(one for one in _observed_columns(raw) if one.vocabulary == column.vocabulary):
            if role == "reward" and _equal(values, outcome, raw.order.rows, raw.order.rows):
                same[name] = f"the same values as reward '{column.name}' of the same row"
    rewards = {reward.name for reward in raw.reward or ()} if raw.from_table else set()
    same |= {one.name: "the column of the reward" for one in _observed_columns(raw) if one.name in rewards}
    for name, found in same.items():
        yield Finding(name, None, found, KNOWN_BEFORE, "drop the column")
    doubtful = {
        one.name: "named like what follows the decision" for one in _observed_columns(raw) if is_after(one.name)
    }
    doubtful |= dict(_tellers(raw))
    for name, found in doubtful.items():
        if name not in same:
            yield Finding(name, None, found, KNOWN_BEFORE, DROP_TELLER)


def _tellers(raw: RawLog) -> Iterator[tuple[str, str]]:
    """Names of the observation columns that tell a reward, and how."""
    columns = [(name, one, column) for column in _observed_columns(raw) for name, one in _whole((column,))]
    action, discrete = raw.action, raw.action is not None and raw.action.kind == "discrete"
    for reward in [one for one in raw.reward or () if one.values.ndim == 1]:
        usable = reward.usable & np.isfinite(reward.values)
        rows = slice(None) if usable.all() else np.flatnonzero(usable)
        codes = _codes_of(action.values[:, 0]) if action is not None and discrete else np.zeros(raw.rows, np.int64)
        rewards = DecisionRewards.of(reward.values[rows], codes[rows], single=len(raw.order.ids) == raw.rows)
        if (
            action is not None
            and not discrete
            and any(leak_of(one[rows], rewards) for _, one in _whole(action.columns))
        ):
            continue  # the action decides the reward, and an observation may decide the action
        for name, values, column in columns:
            how = leak_of(values[rows], rewards, words=column.vocabulary is not None)
            if how is not None:
                yield name, f"it tells the reward '{reward.name}': {how}"


KNOWN_BEFORE = "only information from before the action"
DROP_TELLER = "drop it if it is recorded after the decision; keep it if it is known before"


def _codes_of(values: Values) -> Values:
    """[N] int64: whole numbers from 0 for different values."""
    known = clip_finite(values)
    if not len(known) or (known.min() >= 0 and known.max() < _MOST_CODES):
        return known.astype(np.int64)
    return np.asarray(np.unique(known, return_inverse=True)[1], np.int64)


@check("unbalanced actions", "warning")
def unbalanced_actions(raw: RawLog) -> Iterable[Finding]:
    """An action is never taken, or is rare: in fewer than 10 rows or 0.1% of them."""
    if raw.action is None or raw.action.kind == "continuous":
        return
    sizes = raw.action.sizes if raw.action.kind == "multi" else (action_count(raw),)
    for place, (name, values) in enumerate(_numbers(raw.action.columns)):
        known = clip_finite(values)
        size = sizes[place] if sizes and place < len(sizes) else int(known.max(initial=0)) + 1
        codes = known[(known >= 0) & (known < min(size, _MOST_ACTIONS))].astype(np.int64)
        if len(codes) and codes.min() < codes.max():
            yield from _unbalanced(name, *np.unique(codes, return_counts=True), size, raw.action.columns[0].vocabulary)


@check("rounded propensities", "note")
def rounded_propensities(raw: RawLog) -> Iterable[Finding]:
    """Declared propensities sum to nearly 1, as rounded numbers do; they are divided by their sum."""
    if raw.declared is None or raw.action is None or raw.action.kind != "discrete" or not raw.action.usable.all():
        return
    try:
        total = probabilities_of(raw.declared, action_labels(raw))[1]
    except DeclarationError:
        return  # an error, which another check reports
    if abs(total - 1.0) > _ROUNDING:
        found = f"declared propensities that sum to {total:.6g} and are divided by this sum"
        yield Finding("propensity", None, found, "a sum of 1", "nothing, if they are rounded")


@check("few episodes", "warning")
def few_episodes(raw: RawLog) -> Iterable[Finding]:
    """There are fewer than ten episodes."""
    count = len(raw.order.ids)
    if 0 < count < _FEW_EPISODES:
        advice = "set episode= if rows form other episodes; intervals over so few episodes are wide"
        yield Finding(None, None, _amount(count, "episode"), f"at least {_FEW_EPISODES}", advice)


@check("gap in steps", "warning")
def gap_in_steps(raw: RawLog) -> Iterable[Finding]:
    """Steps within an episode jump by more than usual; rows may be missing."""
    if raw.step is None or raw.episode is None or raw.order.key is None or raw.rows < 2:
        return
    jump = np.diff(clip_finite(raw.order.key))
    inside = ~raw.order.last[:-1]
    usual = np.median(jump[inside]) if inside.any() else 0.0
    gap = inside & (jump > 1.5 * usual)
    if gap.any():
        found, expected = f"jumps of {first_values(jump[gap])}", f"steps of {usual:g}"
        advice = "add the missing rows; the row after a gap counts as the next observation"
        yield Finding(raw.step.name, raw.order.rows[1:][gap], found, expected, advice)


@check("gap in time", "warning")
def gap_in_time(raw: RawLog) -> Iterable[Finding]:
    """A step within an episode took ten times longer than the median step."""
    jump, inside = _elapsed(raw)
    usual = float(np.median(jump[inside & (jump > 0)])) if (inside & (jump > 0)).any() else 0.0
    long = inside & (jump > _LONG * usual) & (usual > 0)
    if raw.time is not None and long.any():
        found, expected = f"steps of up to {_spoken(raw, jump[long].max())}", f"about {_spoken(raw, usual)} as usual"
        advice = "add the missing rows, or split the episodes there; each decision is discounted as one step"
        yield Finding(raw.time.name, raw.order.rows[1:][long], found, expected, advice)


@check("time runs backwards", "warning")
def time_backwards(raw: RawLog) -> Iterable[Finding]:
    """A row has a later step but an earlier time than the row before."""
    jump, inside = _elapsed(raw)
    back = inside & (jump < 0)
    if raw.time is not None and back.any():
        advice = "correct step= or time=; rows are in the order of steps"
        yield Finding(raw.time.name, raw.order.rows[1:][back], "earlier than the row before", "rising times", advice)


@check("many categories", "warning")
def many_categories(raw: RawLog) -> Iterable[Finding]:
    """A categorical column has almost as many different values as rows."""
    for feature in raw.observation.values():
        for column in feature.columns:
            count = len(column.vocabulary or ())
            if count > _MANY_CATEGORIES and count > raw.rows / 2:
                found, expected = f"{count:,} different values in {raw.rows:,} rows", "values that repeat"
                yield Finding(column.name, None, found, expected, "drop identifiers, dates and free text")


@check("many actions", "warning")
def many_actions(raw: RawLog) -> Iterable[Finding]:
    """Almost every row has an action of its own, which no other row can tell anything about."""
    action = raw.action
    if action is None or action.kind != "discrete" or not raw.rows:
        return
    count = len(np.unique(action.values))
    if count > _MANY_ACTIONS and count > raw.rows / 2:
        found = f"{count:,} different actions in {raw.rows:,} rows"
        fix = (
            "name the column of decisions in `action`; a text that holds amounts is no action: make it numbers or lists"
        )
        yield Finding(action.columns[0].name, None, found, "actions that repeat", fix)


@check("actions inferred", "note")
def actions_inferred(raw: RawLog) -> Iterable[Finding]:
    """The number of actions was not declared; it is one more than the largest logged, or the number of labels."""
    if raw.action is None or raw.action.sizes is not None or raw.action.kind == "continuous" or raw.rows == 0:
        return
    values = clip_finite(raw.action.values)
    sizes = [action_count(raw)] if raw.action.kind == "discrete" else [int(top) + 1 for top in values.max(axis=0)]
    found = f"{', '.join(map(str, sizes))} {'action' if sizes == [1] else 'actions'}, inferred from the log"
    yield Finding(action_name(raw), None, found, "a declared number of actions", "declare actions= if there are more")


@check("bounds inferred", "note")
def bounds_inferred(raw: RawLog) -> Iterable[Finding]:
    """Bounds were not declared; they are the smallest and the largest logged action."""
    if raw.action is None or raw.action.bounds is not None or raw.action.kind != "continuous" or raw.rows == 0:
        return
    values = clip_finite(raw.action.values)
    found = f"actions from {first_values(values.min(axis=0))} to {first_values(values.max(axis=0))}, used as the bounds"
    yield Finding(action_name(raw), None, found, "declared bounds", "declare bounds=(low, high) if more is possible")


@check("rounded to 32 bits", "note")
def rounded(raw: RawLog) -> Iterable[Finding]:
    """Arrays of 64-bit numbers were rounded to 32 bits."""
    if raw.from_table:
        return
    columns = [column for feature in raw.observation.values() for column in feature.columns]
    columns += [*(raw.action.columns if raw.action is not None else ()), *(raw.reward or ())]
    wide = [column.name for column in columns if column.values.dtype == np.float64]
    if wide:
        found = "64-bit numbers, rounded to 32 bits"
        yield Finding(_named(wide), None, found, "32-bit numbers", "nothing, unless digits beyond the seventh matter")


def _unbalanced(
    name: str, present: Values, counts: Values, size: int, words: tuple[str, ...] | None
) -> Iterator[Finding]:
    """Find actions of one dimension (of `size`) that were never present, and those that are rare by `counts`."""
    label = (lambda action: words[action]) if words else str
    rows = int(counts.sum())
    rare = present[((counts < _RARE_ROWS) | (counts < _RARE_SHARE * rows)) & (counts < 0.1 * rows / size)]
    missing = size - len(present)
    if missing:
        first = np.setdiff1d(np.arange(min(size, len(present) + 6)), present)[:6].tolist()
        found = f"{missing:,} of {size:,} actions never present: {_named(list(map(label, first)), missing)}"
        advice = "declare only actions in the log, mask the others, or use an algorithm that stays near the log"
        yield Finding(name, None, found, "every action in the log", advice)
    if len(rare):
        found = f"{len(rare):,} of {size:,} actions in very few rows: {_named(list(map(label, rare.tolist())))}"
        yield Finding(name, None, found, "at least ten rows of each", "merge rare actions, or distrust their values")


def _outcomes(raw: RawLog) -> Iterator[tuple[str, Values, Column]]:
    """Role, numbers [N] and column of each reward and of a single action."""
    single = raw.action.columns if raw.action is not None and raw.action.values.shape[1] == 1 else ()
    for role, columns in (("reward", raw.reward or ()), ("action", single)):
        for column in columns:
            for _, values in _whole((column,)):
                yield role, values, column


def _equal(values: Values, outcome: Values, after: Values, before: Values, chosen: Values | None = None) -> bool:
    """Whether `values[after]` equal `outcome[before]`, in at least ten chosen rows, and are not constant."""
    if len(before if chosen is None else chosen) < _ENOUGH:
        return False
    for few in (slice(_SAMPLE), slice(None)):
        at = few if chosen is None else chosen[few]
        if not np.array_equal(values[after[at]], outcome[before[at]]):
            return False
    return not _constant(outcome[before[at]])


def _elapsed(raw: RawLog) -> tuple[Values, Values]:
    """[N - 1] time from each row to the next, in episode order, and whether both are known and of one episode."""
    if raw.time is None or raw.rows < 2:
        return np.zeros(0), np.zeros(0, bool)
    known = raw.order.sort(raw.time.usable)
    return np.diff(clip_finite(raw.order.sort(raw.time.values))), ~raw.order.last[:-1] & known[1:] & known[:-1]


def _spoken(raw: RawLog, elapsed: float) -> str:
    dates = raw.time is not None and raw.time.values.dtype.kind == "M"
    return str(timedelta(microseconds=elapsed)) if dates else f"{elapsed:g}"


def _observed(raw: RawLog, codes: bool = True) -> Iterator[tuple[str, Values]]:
    yield from _numbers(_observed_columns(raw, codes))


def _observed_columns(raw: RawLog, codes: bool = True) -> Iterator[Column]:
    """Observation columns of numbers and codes, without images."""
    for feature in raw.observation.values():
        if feature.kind == "vector" or (codes and feature.kind == "codes"):
            yield from feature.columns


def _numbers(columns: Iterable[Column]) -> Iterator[tuple[str, Values]]:
    """Name and finite values of each column, or of each dimension of a wide one."""
    for column in columns:
        usable = None if column.usable.all() else column.usable
        for name, whole in _whole((column,)):
            values = whole if usable is None else whole[usable]
            finite = np.isfinite(values)
            yield name, values if finite.all() else values[finite]


def _whole(columns: Iterable[Column]) -> Iterator[tuple[str, Values]]:
    """Name and values [N] of each column, or of each dimension of a wide one."""
    for column in columns:
        wide = column.values.reshape(len(column.values), -1)
        for place in range(wide.shape[1]):
            yield f"{column.name}[{place}]" if wide.shape[1] > 1 else column.name, wide[:, place]


def _constant(values: Values) -> bool:
    return len(values) > 1 and bool(values.min() == values.max())


def _named(names: list[str], count: int | None = None) -> str:
    more = (count or len(names)) - 5
    return ", ".join(names[:5]) + (f" and {more:,} more" if more > 0 else "")


def _amount(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"
