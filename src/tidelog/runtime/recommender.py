"""A saved policy over a catalogue: histories in, lists of items out, without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.errors import SpecError
from tidelog.runtime.artefact_files import Saved
from tidelog.runtime.recommend import Ranks, Recommendations, Vocabulary, recommend
from tidelog.types import Spec


class Recommender:
    """Ranks the items of a catalogue; the same methods as `tidelog.Policy.recommend`, and the same answers."""

    is_recurrent = False  # the history is the whole state

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
        """Return the best `k` items after each history, a list of item ids, the latest last; [] is an empty history.

        `exclude_seen` excludes items of the history; `candidates` are the only items to choose from, `exclude` are
        never chosen; `events` lists the kind of each step (default: the most frequent one); `users` holds one mapping
        per history, from columns of the user features to values (None: nothing is known). SpecError where fewer than
        `k` items remain, or an id or value is unknown (`unknown="skip"` ignores it in histories and users).
        """
        return recommend(
            self._ranker, self._vocabulary, histories, k, exclude_seen, candidates, exclude, events, users, unknown
        )

    def ranker(self) -> Ranks:
        """Return the ranker of item indices."""
        return self._ranker

    def __call__(self, observation: Any, mask: Any = None, memory: Any = None) -> Any:
        """Raise SpecError: items are ranked, not chosen."""
        raise SpecError("this policy ranks items of a catalogue. fix: call policy.recommend(histories, k)")
