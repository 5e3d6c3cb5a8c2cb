"""Who users are: what a caller says of them by column, as the numbers that a policy reads.

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
MOST = 1e38  # that 32 bits hold
FEW = 20  # words that an error lists


class Profiles:
    """Reads what is said of users; what is not said of one counts as what is usual, and as none of the words."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.columns: dict[str, dict[str | None, int]] = {}  # the words of each; of numbers, None alone
        for place, (column, word) in enumerate(zip(profile.columns, profile.words, strict=True)):
            self.columns.setdefault(column, {})[word] = place

    def is_number(self, column: str) -> bool:
        """Whether a column holds numbers, not words."""
        return None in self.columns[column]

    def read(self, users: Any, rows: int, skip: bool = False) -> NumpyArray:
        """[B, F] of one mapping a user, None for one of whom nothing is known; `skip` passes over unknown words.

        SpecError names the user, the column and what was expected.
        """
        if isinstance(users, str | bytes | Mapping) or not isinstance(users, Sequence | np.ndarray):
            raise SpecError(f"users must be a list with a mapping for each history, found {type(users).__name__}")
        if len(users) != rows:
            raise SpecError(f"{rows} histories and {len(users)} users were handed in")
        found = np.zeros((rows, len(self._profile.columns)), np.float32)
        for i, user in enumerate(users):
            if user is not None and not isinstance(user, Mapping):
                raise SpecError(f"users[{i}] must be a mapping from columns to values, or None, found {user!r:.80}")
            for column, value in (user or {}).items():
                where = f"users[{i}]['{column}']"
                if column not in self.columns:
                    raise SpecError(f"{where} is not known of users: {nearest(str(column), self.columns)}")
                if self.is_number(column):
                    place = self.columns[column][None]
                    found[i, place] = self._number(place, value, where)
                else:
                    found[i, self._words(column, value, where, skip)] = 1.0
        return found

    def _number(self, place: int, value: Any, where: str) -> float:
        if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
            return 0.0
        if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
            raise SpecError(f"{where} is {value!r:.80}: expected a number, or None")
        number: Any = value
        away = (float(number) - self._profile.mean[place]) / self._profile.spread[place] if abs(number) < MOST else MOST
        if not abs(away) < MOST:
            raise SpecError(f"{where} is {value!r:.80}: expected a finite number")
        return away

    def _words(self, column: str, value: Any, where: str, skip: bool) -> list[int]:
        known = self.columns[column]
        listed = [value] if isinstance(value, str) else [] if value is None else value
        if isinstance(listed, Mapping) or not isinstance(listed, Sequence | np.ndarray):
            raise SpecError(f"{where} is {value!r:.80}: expected a word, a list of words, or None")
        places = []
        for word in listed:
            plain = word.strip() if isinstance(word, str) else word
            if isinstance(plain, str) and plain in known:
                places.append(known[plain])
            elif not isinstance(plain, str):
                raise SpecError(f"{where} holds {word!r:.80}: expected words")
            elif plain and not skip:
                guess = nearest(plain, [one for one in known if one is not None])
                guess = guess if len(known) < FEW or guess.startswith("did") else f"{len(known)} words are known"
                raise SpecError(
                    f"{where} holds {word!r:.80}, which no user had; {guess} (unknown='skip' passes over it)"
                )
        return places
