"""A saved policy over a catalogue: histories in, lists of items out, without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.errors import SpecError
from tidelog.runtime.artefact_files import Saved
from tidelog.runtime.recommend import Ranks, Recommendations, Vocabulary, recommend
from tidelog.types import Spec


class Recommender:
    """Ranks the items of a catalogue; the same calls as `tidelog.Policy.recommend`, and the same answers."""

    is_recurrent = False  # a history says all

    def __init__(self, saved: Saved, ranker: Ranks) -> None:
        self.spec: Spec = saved.spec
        self.manifest: Mapping[str, Any] = saved.manifest
        self._ranker, self._vocabulary = ranker, Vocabulary(saved.spec)

    def recommend(
        self,
        histories: Any,
        k: int = 10,
        exclude_seen: bool = True,
        candidates: Any = None,
        exclude: Any = None,
        *,
        events: Any = None,
        users: Any = None,
        unknown: str = "error",
    ) -> Recommendations:
        """The best `k` items after each history, a list of item ids, the latest last; [] is a user without one.

        `exclude_seen` leaves out what a history holds; `candidates` are the only items to choose among, `exclude` are
        never chosen; `events` lists the kind of each step (default: the most frequent one); `users` is a mapping a
        history, from columns of the user features to values (None: nothing is known). SpecError where fewer than `k`
        items remain, or an id or a word is not known (`unknown="skip"` passes over it in histories and users).
        """
        return recommend(
            self._ranker, self._vocabulary, histories, k, exclude_seen, candidates, exclude, events, users, unknown
        )

    def ranker(self) -> Ranks:
        """What ranks item indices."""
        return self._ranker

    def __call__(self, observation: Any, mask: Any = None, memory: Any = None) -> Any:
        """Raise SpecError: items are ranked."""
        raise SpecError("this policy ranks items of a catalogue: call policy.recommend(histories, k)")
