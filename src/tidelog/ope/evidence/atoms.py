"""Atoms: values of continuous actions that a logger takes again and again, each with a probability of its own.

"No change" is exactly 0, a dose is one of five strengths: such a logger has a probability at each of these values and a
density elsewhere, and no single density describes both. A policy with a density never takes exactly an atom, so that
rows there have no weight for it; a deterministic policy that takes one exactly has the probability 1 of it.

A log may declare its atoms. Others are found by how often values repeat, compared with their neighbours: a value that
stands out from these is an atom, and so is every repeated value of a coarse grid. The fine grid of rounded numbers is
none: there a density is right. A value on a bound is not counted here (`checks.py` refuses clipped actions).

Letters: `N` steps, `A` action size, `P` patterns, `V` different values of one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.types import Continuous

FEWEST, SHARE = 5, 0.005  # rows of an atom, and share of all rows: fewer are tolerated
TIMES, NEIGHBOURS = 5.0, 3  # an atom has more than so many times the rows of its neighbours, so many on each side
COARSE = 0.05  # of a grid, largest share of a value for which a density is right
_LISTED = 3

Actions = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Atoms:
    """The atoms of each dimension, and the patterns in which a log's actions lie on them.

    Pattern 0 is off all atoms; the others say in which dimensions an action lies on which atom.
    """

    values: tuple[Actions, ...]  # of each dimension, rising
    numbering: tuple[NDArray[np.int64], ...]  # of each dimension, codes of the patterns up to it, rising
    fixed: NDArray[np.float64]  # [P, A]: the atom of each pattern, NaN where it has none

    @property
    def patterns(self) -> int:
        """Number of patterns `P`."""
        return len(self.fixed)

    def lie_on(self, actions: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether each number of actions [..., A] is an atom."""
        return np.stack([_codes(actions[..., d], own) > 0 for d, own in enumerate(self.values)], axis=-1)

    def pattern_of(self, actions: NDArray[np.floating]) -> NDArray[np.int64]:
        """The pattern [...] of actions [..., A]; -1 for one that the log has not."""
        pattern = np.zeros(actions.shape[:-1], np.int64)
        for d, (own, known) in enumerate(zip(self.values, self.numbering, strict=True)):
            code = pattern * (len(own) + 1) + _codes(actions[..., d], own)
            place = np.minimum(np.searchsorted(known, code), len(known) - 1)
            pattern = np.where(known[place] == code, place, -1)
        return pattern

    @property
    def text(self) -> str:
        """The atoms in words: "exactly 0", "one of 11 values (0, 0.1, 0.2, ...)"."""
        values = np.unique(np.concatenate(self.values))
        shown = ", ".join(f"{one:.4g}" for one in values[:_LISTED])
        if len(values) == 1:
            return f"exactly {shown}"
        return f"one of {len(values):,} values ({shown}{', ...' if len(values) > _LISTED else ''})"


def atoms_of(log: Log, *, declared: bool = True) -> Atoms | None:
    """The atoms of a log's continuous actions, declared ones too; None if there are none.

    Without `declared`, those that are found alone.
    """
    space = log.spec.action
    if not isinstance(space, Continuous):
        return None
    action = np.asarray(log.action, np.float32)
    named = np.asarray(log.atoms if declared else (), np.float32)
    values = tuple(
        np.union1d(named[np.isin(named, column)], repeated_values(column, low, high)).astype(np.float32)
        for column, low, high in zip(action.T, space.low, space.high, strict=True)
    )
    if not any(map(len, values)):
        return None
    numbering, pattern = [], np.zeros(len(action), np.int64)
    fixed = np.zeros((1, 0))  # of each pattern so far
    for column, own in zip(action.T, values, strict=True):
        code = pattern * (len(own) + 1) + _codes(column, own)
        known = np.unique(np.append(code, 0))  # the pattern off all atoms comes first, whether a row has it or not
        before, here = known // (len(own) + 1), known % (len(own) + 1)
        fixed = np.column_stack([fixed[before], np.append(np.nan, own)[here]])
        pattern = np.searchsorted(known, code)
        numbering.append(known)
    return Atoms(values, tuple(numbering), fixed)


def repeated_values(column: Actions, low: float, high: float) -> Actions:
    """The atoms of one dimension, [N] -> [V], strictly between its bounds."""
    values, counts = np.unique(column, return_counts=True)
    if len(values) < 2:
        return values[:0]
    inside = (values > np.float32(low)) & (values < np.float32(high))
    often = (counts >= FEWEST) & (counts >= SHARE * len(column)) & inside
    around = np.full((2 * NEIGHBOURS, len(values)), np.nan)
    for away in range(1, min(NEIGHBOURS, len(values) - 1) + 1):
        around[away - 1, away:], around[-away, :-away] = counts[:-away], counts[away:]
    # One more row than their median, for the values of a fine grid vary by chance; none where no neighbour repeats.
    usual = np.where(np.nanmax(around, axis=0) > 1, np.nanmedian(around, axis=0) + 1.0, 1.0)
    stands_out = often & (counts > TIMES * usual)
    most = float(counts[often & ~stands_out].max(initial=0))
    is_coarse = most - 2.0 * np.sqrt(most) > COARSE * len(column)  # more than chance explains
    return values[(counts > 1) & inside] if is_coarse else values[stands_out]


def _codes(column: NDArray[np.floating], own: Actions) -> NDArray[np.int64]:
    """0 for a number that is no atom, else one more than the atom's place among these."""
    if not len(own):
        return np.zeros(column.shape, np.int64)
    numbers = np.asarray(column, np.float32)
    place = np.minimum(np.searchsorted(own, numbers), len(own) - 1)
    return np.where(own[place] == numbers, place + 1, 0)
