"""Lists by a counting rule, with the methods of a policy: for where the advice on lists prefers the rule."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.recommend.interactions.held_out import LONGEST, LONGEST_OF_EVENTS
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.metrics.advice import RULES, counting_rule, rules_for
from tidelog.recommend.metrics.baselines import Ranker
from tidelog.runtime.ranking import Ranker as WholeRanker
from tidelog.runtime.recommender import Recommender, Vocabulary


class RuleRanker:
    """Ranks item indices by a counting rule; it reads neither users nor times."""

    features, known_users, reads_gaps = 0, 0, False

    def __init__(self, rule: Ranker, log: Interactions, name: str) -> None:
        self._rule, self._name = rule, name
        self.items = self.width = len(log.items)
        self.history = LONGEST if log.has_baskets else LONGEST_OF_EVENTS  # as the advice compares them
        self.repeat_share = float(log.repeat_share)

    def rank(
        self,
        histories: NDArray[Any],
        events: NDArray[Any],
        k: int,
        allowed: NDArray[Any] | None = None,
        users: NDArray[Any] | None = None,
        gaps: NDArray[Any] | None = None,
        user_index: NDArray[Any] | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the best `k` items and their scores, [B, k] each, for histories [B, H]; `allowed` is [B, N + 1]."""
        return self._rule.rank(histories, events, k, allowed)

    def whole(self) -> WholeRanker:
        """Raise SpecError: a rule has no item vectors and no likelihoods."""
        raise SpecError(
            f"{self._name} only counts: it has no reasons and no similarity of items. fix: drop --because and "
            "--diversity (because(), diversity=)"
        )


class RuleLists(Recommender):
    """Lists by a counting rule; the same methods as `Policy.recommend`."""

    def __init__(self, log: Interactions, name: str) -> None:
        self.spec, self.name = log.spec, rule_name(log, name)
        algorithm, data = f"counting rule {self.name}", log.fingerprint()
        self.manifest = {"algorithm": algorithm, "spec": self.spec.to_json(), "data": data}
        self._ranker = RuleRanker(counting_rule(log, self.name), log, self.name)
        self._vocabulary = Vocabulary(log.spec)
        self._events = log.steps

    def notes(self) -> list[str]:
        """Return what is counted: the rule, and the number of events."""
        return [f"lists by the counting rule {self.name} ({RULES[self.name]}), over {self._events:,} events"]


def word_of(rule: str) -> str:
    """Return the name of a rule as a word of a command: last-event-markov for last-event Markov."""
    return rule.lower().replace(" ", "-")


def rule_name(log: Interactions, word: str) -> str:
    """Return the name of a rule from its name or its word; ConfigError for one that does not fit the log."""
    known = {word_of(name): name for name in rules_for(log)}
    name = known.get(word_of(word))
    if name is not None:
        return name
    if word_of(word) in map(word_of, RULES):
        why = "its baskets have no order" if log.has_baskets else "all of its events are of one kind"
        raise ConfigError(f"the rule {word} does not fit this log: {why}. fix: use one of {', '.join(known)}")
    raise ConfigError(f"the rule '{word}' is unknown: {nearest(word_of(word), known)}")
