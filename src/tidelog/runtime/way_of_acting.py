"""Labels of actions, and the ways in which a policy can act."""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from tidelog._text import facts_table
from tidelog.errors import ConfigError, SpecError
from tidelog.types import ActionSpace, Catalogue, Continuous, Discrete, Hybrid, Spec, flat_leaves, nested

# The answer of a policy to people: discrete actions by the labels of the log, with their codes for programs.


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
            raise SpecError("these actions are labels, an array of numbers was expected", fix="use .codes")
        return np.asarray(self.labels, dtype)

    def __str__(self) -> str:
        return str(self.labels)

    def __repr__(self) -> str:
        with np.printoptions(threshold=20):
            return f"LabelledActions({self.labels!r}, codes={np.array2string(np.asarray(self.codes), separator=', ')})"

    def __len__(self) -> int:
        return len(self.codes)

    def __bool__(self) -> bool:
        raise SpecError("an action is a label, neither true nor false", fix="compare it, as in action == 'label'")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, which: Any) -> Any:
        chosen = LabelledActions(self.codes[which], self._names)
        return chosen if isinstance(chosen.codes, np.ndarray) else chosen.labels

    def __eq__(self, other: object) -> Any:
        if isinstance(other, LabelledActions):
            other = other.labels
        if isinstance(other, Number) or np.asarray(other).dtype.kind in "biufc":
            raise SpecError(f"{other!s:.50} is no label of an action", fix="compare .codes with numbers")
        return self.labels == other

    def __ne__(self, other: object) -> Any:
        return ~equal if isinstance(equal := self == other, np.ndarray) else not equal

    def __hash__(self) -> int:
        return hash(self.labels)


# The declared way of acting of a policy: its most likely action, or a sample; and the verdict on that way.
#
# A verdict holds for one way of acting only. `tl.judge`, `tidelog judge` and `tidelog export` declare it; the policy,
# its saved forms and every command act in that way. Another way is possible, with a warning.

Acting = Literal["mode", "sample"]
Actions: TypeAlias = NDArray[Any] | LabelledActions | Mapping[str, Any]  # the last of actions with parts
DOES: Mapping[str, str] = {"mode": "always takes its most likely action", "sample": "samples its actions"}
ADVICE: Mapping[str, str] = {
    "better": "Use {name}: it is better than the logged decisions if it {does}.",
    "better if randomised": (
        "Use {name} only if nothing unrecorded decided who got what: then it is better than the logged decisions if it "
        "{does}."
    ),
    "worse": "Do not use it: it is worse than the logged decisions if it {does}.",
    "no difference shown": "No difference was shown: keep what you have.",
    "unsupported": "Do not use it yet: the log cannot show how good it is if it {does}.",
}
RANK = ("unsupported", "worse", "no difference shown", "better if randomised", "better")  # from the worst on
KEEPS: Mapping[bool, str] = {
    True: "an unsupported verdict says nothing against it",
    False: "a verdict on another way of acting replaces it only if it is at least as good",
}  # whether the new verdict is on the carried verdict's way of acting, and why it does not replace that
TEXTS = ("decision", "acting", "date", "caveat", "advice")  # of a verdict's summary; an empty caveat says nothing
UNKNOWN = ("difference", "low", "high")  # numbers that are None where the log shows none
NUMBERS = (*UNKNOWN, "level", "episodes")
LONGEST = 250  # characters of a text


class ActingWarning(UserWarning):
    """A policy acts in another way than the declared one; a verdict on the declared way does not hold for it."""


class BasePolicy(ABC):
    """The calls of a policy: one in its declared way, one for each way. A subclass computes `act`.

    Discrete actions are answered by the labels of the log, if it has any (`LabelledActions`); `act` returns codes.
    Actions with parts are answered as the mapping that the log had, nested as it was, each part as it is by itself.
    """

    reads_other_words: ClassVar[bool] = False  # whether it acts on words that the log does not have
    spec: Spec
    acting: Acting | None  # None: nobody declared it
    verdict: dict[str, Any] | None  # the summary of the verdict on this way of acting
    _draws: np.random.Generator  # of calls without a seed

    def __repr__(self) -> str:
        observation, actions, acting, verdict = self._facts().values()
        return f"Policy of {self._learner}: {observation} -> {actions}; it {acting}; {verdict}"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return facts_table(f"Policy of {self._learner}", self._facts())

    def _facts(self) -> dict[str, str]:
        return {
            "observation": ", ".join(f"{name} {type(leaf).__name__}" for name, leaf in self.spec.observation.items()),
            "actions": _actions(self.spec.action),
            "acting": DOES[self.acting or "mode"],
            "verdict": verdict_line(self.verdict),
        }

    @property
    @abstractmethod
    def _learner(self) -> str:
        """The algorithm that the policy is from, for its representation."""

    def declare(self, acting: Acting | None, verdict: Mapping[str, Any] | None = None) -> None:
        """Declare the way of acting, and the summary of a verdict on it (`Verdict.summary`); both are saved with it.

        ConfigError for another way than "mode", "sample" or None, and for a verdict on another way.
        """
        self.acting, self.verdict, self._draws = read_acting(acting), read_verdict(verdict), np.random.default_rng()
        if self.verdict is not None and self.verdict["acting"] != acting:
            raise ConfigError(
                f"acting = {acting!r}: the verdict is on a policy with acting = {self.verdict['acting']!r}",
                fix="judge the policy in the declared way",
            )

    def with_acting(self, acting: Acting | None) -> Self:
        """Return the policy with this way of acting; a verdict on another way is dropped."""
        other = copy.copy(self)
        other.declare(acting, self.verdict if self.verdict is not None and self.verdict["acting"] == acting else None)
        return other

    def __call__(self, observation: Any, mask: Any = None, state: Any = None) -> Actions:
        """Return the action of one observation, or actions [B, ...], in the declared way; `mask` [A] or [B, A] bool.

        Without a declared way: the most likely action. A policy that samples draws new random numbers at every call. A
        recurrent policy needs a recurrent state from `initial_state` at every step of an episode, and updates it.
        """
        seed = int(self._draws.integers(2**32)) if self.acting == "sample" else None
        return self._labelled(self.act(observation, seed, mask, state)[0])

    def mode(self, observation: Any, mask: Any = None, state: Any = None) -> Actions:
        """Return the most likely action of one observation, or actions [B, ...]; warns if sampling is declared."""
        self._warn_unless("mode")
        return self._labelled(self.act(observation, None, mask, state)[0])

    def sample(self, observation: Any, seed: int = 0, mask: Any = None, state: Any = None) -> Actions:
        """Return random actions of the stochastic policy; the same seed and observations give the same actions.

        Every runtime has the same probabilities, and another stream of random numbers. Warns if the most likely action
        is declared.
        """
        self._warn_unless("sample")
        return self._labelled(self.act(observation, _checked(seed), mask, state)[0])

    def sample_with_propensity(
        self, observation: Any, seed: int = 0, mask: Any = None, state: Any = None
    ) -> tuple[Actions, NDArray[Any] | None]:
        """Return random actions and their probability or density [B] in the actions' own units, or None.

        Continuous samples are clipped at the bounds; the density is the unclipped Gaussian's at the executed action.
        Warns if the most likely action is declared.
        """
        self._warn_unless("sample")
        action, propensity = self.act(observation, _checked(seed), mask, state)
        return self._labelled(action), propensity

    def _labelled(self, action: Any) -> Actions:
        actions: Actions = labelled(self.spec.action, action)
        return actions

    def _warn_unless(self, asked: Acting) -> None:
        if self.acting is not None and self.acting != asked:
            warnings.warn(other_way(self.acting), ActingWarning, stacklevel=3)

    @property
    @abstractmethod
    def is_recurrent(self) -> bool:
        """Whether every step needs a recurrent state from `initial_state`."""

    @abstractmethod
    def initial_state(self, count: int = 1) -> Any:
        """Return a recurrent state for `count` parallel episodes at their start; SpecError without recurrence."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Return notes for the user about this policy."""

    @abstractmethod
    def probabilities(self, observation: Any, mask: Any = None, state: Any = None) -> NDArray[Any]:
        """Return probabilities [A] or [B, A] of sampled discrete actions; SpecError for other actions."""

    @abstractmethod
    def q_values(self, observation: Any, action: Any = None) -> NDArray[Any]:
        """Return the critic's values [A] or [B, A] of discrete actions, or of chosen actions, one number or [B].

        They are in the unit of the log's rewards. SpecError without values.
        """

    def imitation_logits(self, observation: Any, state: Any = None) -> NDArray[Any]:
        """Return the imitator's logits [A] or [B, A] of a discrete BCQ policy; SpecError for every other policy."""
        raise SpecError(
            f"this {self._learner} policy has no imitator",
            fix="use a discrete BCQ policy of tl.load_policy, or policy.probabilities(observation)",
        )

    @abstractmethod
    def act(
        self, observation: Any, seed: int | None = None, mask: Any = None, state: Any = None
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return actions for programs, codes of discrete ones, and the propensities of a sample, else None.

        A sample needs a seed; without one, these are the most likely actions, whatever way of acting is declared.
        """


def has_labels(space: ActionSpace) -> bool:
    """Whether actions, or those of a part, have labels."""
    parts = [part for _, part in space.parts] if isinstance(space, Hybrid) else [space]
    return any(isinstance(part, Discrete) and bool(part.names) for part in parts)


def labelled(space: ActionSpace, action: Any) -> Any:
    """Return actions as people read them: those of a space with labels, or of a part with labels, by these."""
    if isinstance(space, Hybrid):
        named = {name: part for name, part in space.parts if isinstance(part, Discrete) and part.names}
        flat = {name: labelled(named[name], one) if name in named else one for name, one in flat_leaves(action)}
        return nested(flat)
    return LabelledActions(action, space.names) if isinstance(space, Discrete) and space.names else action


def _actions(space: ActionSpace) -> str:
    """Return a few words on the actions, for the representation of a policy."""
    if isinstance(space, Catalogue):
        return f"lists of {len(space.ids):,} items"
    if isinstance(space, Continuous):
        return f"{space.size} continuous actions"
    if isinstance(space, Hybrid):
        return f"actions with the parts {', '.join(name for name, _ in space.parts)}"
    names = getattr(space, "names", ())
    listed = f" ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})" if names else ""
    return f"{space.n} actions{listed}" if isinstance(space, Discrete) else f"choices of {list(space.sizes)}"


def _checked(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise SpecError(f"seed = {seed!r}", f"a whole number from 0 to {2**32 - 1:,}", "use seed=0")
    return int(seed)


P = TypeVar("P", bound=BasePolicy)


def read_acting(value: Any) -> Acting | None:
    """Return a way of acting, None if none is declared; ConfigError for anything else."""
    if value is None or value in get_args(Acting):
        return cast("Acting | None", value)
    raise ConfigError(f"acting = {value!r:.100}", "'mode', 'sample' or None", "use one of them")


def in_way(policy: P, asked: Acting | None, otherwise: Acting = "mode", tell: Callable[[str], None] | None = None) -> P:
    """Return a policy that acts in the way asked for, None: in its declared way, or `otherwise` if none is declared.

    If the way asked for is not the declared one, `tell` gets a sentence on that; without `tell`, it is a warning.
    """
    if asked is not None and policy.acting is not None and policy.acting != asked:
        if tell is None:
            warnings.warn(other_way(policy.acting), ActingWarning, stacklevel=3)
        else:
            tell(other_way(policy.acting))
    return policy.with_acting(asked or policy.acting or otherwise)


def way_of(sample: bool | None) -> Acting | None:
    """Return the way of acting of an argument `sample=`: True, False, or None for the declared way."""
    return None if sample is None else "sample" if sample else "mode"


def other_way(declared: Acting) -> str:
    """Return the warning for acting in another way than the declared one."""
    return (
        f"the policy was declared to be one that {DOES[declared]}, and now acts in the other way: a verdict on it does "
        "not hold for that. fix: act in the declared way, or judge the policy in this way"
    )


def replaces(new: Mapping[str, Any], carried: Mapping[str, Any] | None) -> bool:
    """Return whether a policy that carries a verdict takes over a new one, and the way of acting that this is on.

    On the same way the newer verdict holds, except that an unsupported one replaces only an unsupported one. One on the
    other way must be at least as good: better, better if randomised, no difference shown, worse, unsupported.
    """
    if carried is None or carried["decision"] == "unsupported":
        return True
    if new["acting"] == carried["acting"]:
        return bool(new["decision"] != "unsupported")
    return carried["decision"] not in RANK or RANK.index(new["decision"]) >= RANK.index(carried["decision"])


def read_verdict(value: Any) -> dict[str, Any] | None:
    """Return the summary of a verdict from a file, None if there is none; ConfigError for anything else."""
    if value is None:
        return None
    if isinstance(value, Mapping) and "advice" not in value:  # of an older tidelog
        value = {**value, "advice": advice_on(value.get("decision"), value.get("acting"))}
    if not isinstance(value, Mapping) or set(value) != {*TEXTS, *NUMBERS}:
        raise ConfigError("verdict", f"the fields {', '.join((*TEXTS, *NUMBERS))}", "judge the policy again")
    for name in TEXTS:
        text = value[name]
        if not isinstance(text, str) or len(text) > LONGEST or not text.isprintable():
            raise ConfigError(f"verdict: '{name}' is not a short text", fix="judge the policy again")
    read_acting(value["acting"])
    for name in NUMBERS:
        number = value[name]
        missing = number is None and name in UNKNOWN
        if not missing and (isinstance(number, bool) or not isinstance(number, int | float)):
            raise ConfigError(f"verdict: '{name}' is not a number", fix="judge the policy again")
    return dict(value)


def advice_on(
    decision: Any, acting: Any, known_overlap: bool = True, first_steps: int | None = None, name: str = "it"
) -> str:
    """Return what to do with a policy, by the verdict and the way of acting, None for a rule, which has one way.

    An unknown decision advises nothing.

    `known_overlap`: whether it is known, or stated, that the policy did not learn from the judged episodes.
    `first_steps`: the number of decisions of an episode that were judged; None: all. `name`: of the policy.
    """
    text = ADVICE.get(str(decision), "")
    text = text.replace(" if it {does}", "") if acting is None else text
    text = text.format(does=DOES.get(str(acting), "acts as it was judged"), name=name)
    use = f"Use {name}"
    if first_steps is not None:
        use += f" for the {first_decisions(first_steps)} of an episode only"
        there = f"over the {first_decisions(first_steps)} of an episode"
        text = text.replace("than the logged decisions", f"than the logged decisions {there}").replace(
            "how good it is", f"how good it is {there}"
        )
    use += (
        "" if known_overlap else f"{', and' if first_steps else ''} only if it did not learn from the judged episodes"
    )
    if not known_overlap and decision == "better if randomised":
        return text.replace("who got what:", "who got what, and if it did not learn from the judged episodes:", 1)
    return text.replace(f"Use {name}:", f"{use}:" if known_overlap else f"{use}: then", 1)


def first_decisions(count: int) -> str:
    """Return the words for the judged part of an episode."""
    return "first decision" if count == 1 else f"first {count:,} decisions"


def verdict_line(verdict: Mapping[str, Any] | None) -> str:
    """Return one line on the verdict that a policy carries: what to do, and why; or that it carries none."""
    if verdict is None:
        return "no verdict: nobody has judged this policy in this way. fix: tidelog judge"
    numbers = [verdict[name] for name in ("difference", "low", "high")]
    by = ""
    known = all(number is not None and math.isfinite(number) for number in numbers)
    if known and verdict["decision"] != "unsupported":  # a number for it would be a guess
        difference, low, high = numbers
        by = (
            f", {difference:+.3g} against the behaviour policy ({low:+.3g} to {high:+.3g}, {100 * verdict['level']:g}%)"
        )
    caveat = f"; {verdict['caveat']}" if verdict["caveat"] else ""
    return (
        f"{verdict['advice']} Verdict of {verdict['date'][:10]}: {verdict['decision'].upper()}{by} on "
        f"{verdict['episodes']:,} episodes, for a policy that {DOES[verdict['acting']]}{caveat}"
    )
