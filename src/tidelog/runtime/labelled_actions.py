"""The answer of a policy to people: discrete actions by the labels of the log, with their codes for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import SpecError


class LabelledActions:
    """One action or actions [B] by the labels of the log; `codes` are the same actions as numbers from 0.

    It prints, compares, iterates and becomes an array as its labels. Arithmetic and indices need `codes`.
    """

    __slots__ = ("_names", "codes")
    __array_ufunc__ = None  # `array == actions` asks `__eq__` here

    def __init__(self, codes: Any, names: Sequence[str]) -> None:
        self.codes: Any = np.asarray(codes)[()]  # int32, or [B] int32
        self._names = tuple(names)

    @property
    def labels(self) -> Any:
        """The label of one action, a str; or labels [B]."""
        labels = np.asarray(self._names)[self.codes]
        return labels if isinstance(self.codes, np.ndarray) else str(labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """() or [B]."""
        return np.shape(self.codes)

    def tolist(self) -> Any:
        """Return the label of one action, or a list of labels."""
        return self.labels.tolist() if isinstance(self.codes, np.ndarray) else self.labels

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the labels as an array; SpecError for an array of numbers."""
        if dtype is not None and np.dtype(dtype).kind in "biufc":
            raise SpecError("these actions are labels, an array of numbers was expected. fix: use .codes")
        return np.asarray(self.labels, dtype)

    def __str__(self) -> str:
        return str(self.labels)

    def __repr__(self) -> str:
        with np.printoptions(threshold=20):
            return f"LabelledActions({self.labels!r}, codes={np.array2string(np.asarray(self.codes), separator=', ')})"

    def __len__(self) -> int:
        return len(self.codes)

    def __bool__(self) -> bool:
        raise SpecError("an action is a label, neither true nor false. fix: compare it, as in action == 'label'")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, which: Any) -> Any:
        chosen = LabelledActions(self.codes[which], self._names)
        return chosen if isinstance(chosen.codes, np.ndarray) else chosen.labels

    def __eq__(self, other: object) -> Any:
        if isinstance(other, LabelledActions):
            other = other.labels
        if isinstance(other, Number) or np.asarray(other).dtype.kind in "biufc":
            raise SpecError(f"{other!s:.50} is no label of an action. fix: compare .codes with numbers")
        return self.labels == other

    def __ne__(self, other: object) -> Any:
        return ~equal if isinstance(equal := self == other, np.ndarray) else not equal

    def __hash__(self) -> int:
        return hash(self.labels)
