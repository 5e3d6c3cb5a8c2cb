"""Detect rows and episodes that are exact copies of others more often than by chance.

Rows of a small discrete log repeat by chance. Let f_j be the number of different rows that occur j times. For
independent rows of any distribution these counts are mixtures of Poisson counts, and in expectation
f_(j+1) >= j / (j + 1) * f_j^2 / f_(j-1) (the inequality behind Chao 1984). Copies violate it: if every row occurs
five times, no row occurs four or six times. If rewards or times almost never repeat, a few repeated whole rows are
enough evidence.

Rows are compared by 64-bit hashes; large logs are sampled by hash. Copies are then verified column by column.
Letters: `N` rows, `U` units: rows of one-step logs, else episodes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import RawLog

LEAST_UNITS = 10
_AT_ONCE = 1 << 20  # rows hashed at once
_SAMPLE = 50_000  # approximate number of units compared
_PREFIX, _DISTINCT = 2_000, 200  # first rows examined, and how many distinct rows the chosen columns must give
_IMPROBABLE = 1e-3
_LEAST_PAIRS, _EXCESS = 5, 10.0
_PIXELS = 64  # hashed pixels per image


class Copies(NamedTuple):
    """Copies of earlier rows: `rows` in file order, in `units` (rows or episodes) out of `total`."""

    rows: Values
    units: int
    total: int
    often: int  # most common number of occurrences of a repeated unit


def find_copies(raw: RawLog) -> Copies | None:
    """Find exact copies of rows (one-step logs) or episodes; None if there are none, or chance explains them."""
    units = len(raw.order.ids)
    if units < LEAST_UNITS:
        return None
    columns = _columns(raw)
    few = _distinctive(raw, columns)
    hashes = _unit_hashes(raw, few)
    thin = max(1, units // _SAMPLE) if len(few) < len(columns) else 1
    chosen = np.flatnonzero(hashes % np.uint64(thin) == 0) if thin > 1 else np.arange(units)
    groups = _groups(raw, columns, few, hashes, chosen)
    if groups is None or not (_underdispersed(groups.times) or _beyond_chance(raw, chosen, groups.times, thin)):
        return None
    if thin > 1:
        groups = _groups(raw, columns, few, hashes, np.arange(units))
    return None if groups is None else _verified(raw, columns, groups)


class _Groups(NamedTuple):
    """Equal units: the number of `times` of each different unit, the `later` copies, and the `first` unit of each."""

    times: Values
    later: Values
    first: Values


def _columns(raw: RawLog) -> list[Values]:
    """The compared columns: observations, actions, rewards, times, propensities, ends, mask; [N, ...] in file order."""
    arrays = [column.values for feature in raw.observation.values() for column in feature.columns]
    arrays += [column.values for column in (raw.action.columns if raw.action else ())]
    arrays += [column.values for column in raw.reward or ()]
    single = (raw.time, raw.propensity, raw.terminated, raw.truncated, raw.action_mask)
    arrays += [column.values for column in single if column is not None]
    return [values for values in arrays if values.size]


def _distinctive(raw: RawLog, columns: list[Values]) -> list[Values]:
    """The fewest columns, most distinctive first, that give 200 distinct rows among the first 2,000; else all."""
    heads = [_hash_rows([values[:_PREFIX]], np.arange(len(values[:_PREFIX]))) for values in columns]
    order = sorted(range(len(columns)), key=lambda place: -len(np.unique(heads[place])))
    chosen: list[int] = []
    total: Values = np.zeros(len(heads[0]) if heads else 0, np.uint64)
    for place in order:
        chosen.append(place)
        total = total + heads[place] * _constant(place)
        if len(np.unique(total)) >= _DISTINCT:
            break
    return [columns[place] for place in chosen]


def _constant(place: int) -> np.uint64:
    """An odd number for a column index, the same in every process (SplitMix64, Steele, Lea and Flood 2014)."""
    value = (place + 2) * 0x9E3779B97F4A7C15 % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return np.uint64((value ^ (value >> 31)) | 1)


def _unit_hashes(raw: RawLog, columns: list[Values], units: Values | None = None) -> Values:
    """[U] hashes over the columns, of all units or of these; equal for equal units."""
    order = raw.order
    if len(order.ids) == raw.rows:
        rows = order.rows if units is None else order.rows[units]
        return _hash_rows(columns, rows, whole=units is None and not order.moved)
    starts = np.append(np.flatnonzero(np.append(True, order.last[:-1])), raw.rows)
    lengths = np.diff(starts)
    if units is None:
        places, sizes = np.arange(raw.rows), lengths
    else:
        sizes = lengths[units]
        places = np.arange(int(sizes.sum())) + np.repeat(starts[units] - (np.cumsum(sizes) - sizes), sizes)
    hashes = _hash_rows(columns, order.rows[places], whole=units is None and not order.moved)
    hashes += order.step[places].astype(np.uint64) * _constant(-1)
    return np.add.reduceat(_mixed(hashes), np.cumsum(sizes) - sizes)


def _hash_rows(columns: list[Values], rows: Values, whole: bool = False) -> Values:
    """[n] hashes of rows of columns; `whole`: the rows are all rows in order."""
    total = np.zeros(len(rows), np.uint64)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        place = 0
        for values in columns:
            block = values[part] if whole else values[rows[part]]
            wide = block.reshape(len(block), -1)
            step = max(1, wide.shape[1] // _PIXELS) if block.ndim == 4 else 1
            for column in range(0, wide.shape[1], step):
                bits = _bits(wide[:, column])
                bits ^= bits >> np.uint64(15)
                bits *= _constant(place)
                total[part] += bits
                place += 1
    return _mixed(total)


def _bits(values: Values) -> Values:
    """Numbers as new 64-bit integers; equal numbers of one type give equal integers."""
    if values.dtype.kind == "f" and values.dtype.itemsize == 4:
        return np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    if values.dtype.kind == "f":
        return np.array(values, np.float64).view(np.uint64)
    return (values.view(np.int64) if values.dtype.kind == "M" else values).astype(np.int64).view(np.uint64)


def _mixed(values: Values) -> Values:
    """Mix the upper and the lower half of the bits of each number, in place."""
    values ^= values >> np.uint64(32)
    values *= np.uint64(0xD6E8FEB86659FD93)
    values ^= values >> np.uint64(32)
    return values


def _groups(raw: RawLog, columns: list[Values], few: list[Values], hashes: Values, chosen: Values) -> _Groups | None:
    """Find chosen units that are equal in all columns, one of each cluster; None if there are none."""
    keys = hashes[chosen]
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    again = counts[inverse.reshape(-1)] > 1
    candidates = chosen[again]
    if not len(candidates):
        return None
    whole = hashes[candidates] if len(few) == len(columns) else _unit_hashes(raw, columns, candidates)
    alone = len(chosen) - len(candidates)
    if raw.cluster is not None:
        firsts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
        codes = np.unique(raw.order.sort(raw.cluster.values)[firsts], return_inverse=True)[1].reshape(-1)[candidates]
        own = np.unique(whole + _mixed(codes.astype(np.uint64) + np.uint64(1)), return_index=True)[1]
        candidates, whole = candidates[np.sort(own)], whole[np.sort(own)]
    _, first, inverse, counts = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    later = np.flatnonzero(first[inverse] != np.arange(len(candidates)))
    if not len(later):
        return None
    times = np.concatenate([counts, np.ones(alone, counts.dtype)])
    return _Groups(times, candidates[later], candidates[first[inverse[later]]])


def _underdispersed(times: Values) -> bool:
    """Whether one multiplicity is too common, compared with its neighbours, for independent rows of any distribution.

    Each count gets a margin of three standard deviations; then a Chernoff bound of the Poisson tail applies.
    """
    counts = np.bincount(times)
    counts = np.append(counts, 0)
    for often in np.flatnonzero(counts[2:-1] >= 10) + 2:
        here, below, above = float(counts[often]), float(counts[often - 1]), float(counts[often + 1])
        low, high = max(here - 3.0 * math.sqrt(here), 0.0), below + 3.0 * math.sqrt(below) + 3.0
        expected = often / (often + 1.0) * low**2 / high
        if above < expected and _lower_tail(above, expected) < _IMPROBABLE:
            return True
    return False


def _lower_tail(count: float, mean: float) -> float:
    """An upper bound of the probability that a Poisson variable of this mean is at most `count` (below the mean)."""
    return math.exp(count - mean - (count * math.log(count / mean) if count else 0.0))


def _beyond_chance(raw: RawLog, chosen: Values, times: Values, thin: int) -> bool:
    """Whether whole units repeat although rewards or times almost never do.

    Values are assumed uniform over their range, in steps of their smallest difference if all differences are multiples
    of it, else of their type's precision; the limit is three times larger because they are not uniform.
    """
    pairs = float(np.sum(times.astype(np.float64) * (times - 1.0))) / 2.0 * thin
    if pairs < _LEAST_PAIRS:
        return False
    units = len(raw.order.ids)
    firsts = raw.order.rows[np.append(True, raw.order.last[:-1])][chosen]
    columns = [column for column in (*(raw.reward or ()), *([raw.time] if raw.time else ())) if column.values.ndim == 1]
    for column in columns:
        values = column.values[firsts]
        values = values.astype(np.int64) if values.dtype.kind == "M" else values
        different = np.unique(values)
        if len(different) < 0.5 * len(values) or not np.isfinite(different).all():
            continue
        gaps = np.diff(different).astype(np.float64)
        reach, smallest = float(gaps.sum()), float(gaps.min())
        steps = gaps[gaps < 1e4 * smallest] / smallest
        even = len(steps) >= 0.5 * len(gaps) and float(np.mean(np.abs(steps - np.round(steps)) > 0.1)) < 0.05
        kind = values.dtype.type if values.dtype.kind == "f" else np.float64
        precise = max(float(np.spacing(kind(reach))), 1.0 if values.dtype.kind in "iu" else 0.0)
        if pairs > _EXCESS * 3.0 * 0.5 * units**2 * (smallest if even else precise) / reach:
            return True
    return False


def _verified(raw: RawLog, columns: list[Values], groups: _Groups) -> Copies | None:
    """Copies that equal their first unit in every column."""
    order = raw.order
    starts = np.append(np.flatnonzero(np.append(True, order.last[:-1])), raw.rows)
    sizes = np.diff(starts)
    same = sizes[groups.later] == sizes[groups.first]
    later, first = groups.later[same], groups.first[same]
    lengths = sizes[later]
    inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows, others = (order.rows[np.repeat(starts[units], lengths) + inside] for units in (later, first))
    equal = np.ones(len(rows), bool)
    for values in columns:
        for start in range(0, len(rows), _AT_ONCE // 16):
            part = slice(start, start + _AT_ONCE // 16)
            differs = values[rows[part]] != values[others[part]]
            equal[part] &= ~differs.reshape(len(differs), -1).any(axis=1)
    if not len(rows):
        return None
    whole = np.logical_and.reduceat(equal, np.cumsum(lengths) - lengths)
    repeated = groups.times[groups.times > 1]
    often = int(np.bincount(repeated).argmax())
    return (
        Copies(np.sort(rows[np.repeat(whole, lengths)]), int(whole.sum()), len(order.ids), often)
        if whole.any()
        else None
    )
