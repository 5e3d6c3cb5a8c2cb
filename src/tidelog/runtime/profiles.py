"""User features: a caller's values by column, as the numbers that a policy reads.

Letters: `B` users, `F` features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tidelog.errors import SpecError, nearest
from tidelog.types import Profile

NumpyArray = np.ndarray[Any, Any]
MOST = 1e38  # largest 32-bit number, about
FEW = 20  # values that an error lists


class Profiles:
    """Reads user features; a missing number counts as the mean, a missing category as none."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.columns: dict[str, dict[str | None, int]] = {}  # the categories of each; for numbers only None
        for place, (column, word) in enumerate(zip(profile.columns, profile.words, strict=True)):
            self.columns.setdefault(column, {})[word] = place

    def is_number(self, column: str) -> bool:
        """Return whether a column holds numbers."""
        return None in self.columns[column]

    def read(self, users: Any, rows: int, skip: bool = False) -> NumpyArray:
        """Return [B, F] of one mapping per user, None for an unknown user; `skip` ignores unknown categories.

        SpecError names the user, the column and the expected value.
        """
        if isinstance(users, str | bytes | Mapping) or not isinstance(users, Sequence | np.ndarray):
            raise SpecError(
                f"users has the type {type(users).__name__}, expected a list. fix: pass one mapping per history"
            )
        if len(users) != rows:
            raise SpecError(f"{rows} histories with {len(users)} users. fix: pass one user per history")
        numbers = np.zeros((rows, len(self._profile.columns)), np.float32)
        for i, user in enumerate(users):
            if user is not None and not isinstance(user, Mapping):
                raise SpecError(f"users[{i}] is {user!r:.80}, expected a mapping or None. fix: columns to values")
            for column, value in (user or {}).items():
                where = f"users[{i}]['{column}']"
                if column not in self.columns:
                    raise SpecError(f"{where} is an unknown column: {nearest(str(column), self.columns)}")
                if self.is_number(column):
                    place = self.columns[column][None]
                    numbers[i, place] = self._number(place, value, where)
                else:
                    numbers[i, self._words(column, value, where, skip)] = 1.0
        return numbers

    def _number(self, place: int, value: Any, where: str) -> float:
        if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
            return 0.0
        if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
            raise SpecError(f"{where} is {value!r:.80}: expected a number or None. fix: convert it")
        number: Any = value
        away = (float(number) - self._profile.mean[place]) / self._profile.spread[place] if abs(number) < MOST else MOST
        if not abs(away) < MOST:
            raise SpecError(f"{where} is {value!r:.80}: expected a finite number. fix: use None")
        return away

    def _words(self, column: str, value: Any, where: str, skip: bool) -> list[int]:
        known = self.columns[column]
        listed = [value] if isinstance(value, str) else [] if value is None else value
        if isinstance(listed, Mapping) or not isinstance(listed, Sequence | np.ndarray):
            raise SpecError(f"{where} is {value!r:.80}: expected text, a list of texts, or None. fix: convert it")
        places = []
        for word in listed:
            plain = word.strip() if isinstance(word, str) else word
            if isinstance(plain, str) and plain in known:
                places.append(known[plain])
            elif not isinstance(plain, str):
                raise SpecError(f"{where} has {word!r:.80}: expected text. fix: convert it")
            elif plain and not skip:
                guess = nearest(plain, [one for one in known if one is not None])
                guess = guess if len(known) < FEW or guess.startswith("did") else f"{len(known)} values are known"
                raise SpecError(
                    f"{where} has {word!r:.80}, unknown in the log; {guess}. fix: unknown='skip' ignores it"
                )
        return places
