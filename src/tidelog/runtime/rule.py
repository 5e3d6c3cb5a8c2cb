"""A rule: one action for everybody, or an action for each answer to at most two questions about the observation.

A rule is a policy like any other, and runs with NumPy alone. Its file is one page of JSON: the tree of questions with
the log's column names and action labels, the same as a sentence, and how observations are read. Numbers are compared in
the unit of the log. A word that the log does not have is like every other word that a question does not name.

Letters: `B` batch, `A` number of actions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog._files import Kind, digest, open_regular, read_regular, write_file
from tidelog.errors import CheckpointError, ConfigError, SpecError, nearest
from tidelog.runtime.artefact import read_spec, spec_notes
from tidelog.runtime.observations import RawBatch, read_mask, read_observation
from tidelog.runtime.way_of_acting import Acting, BasePolicy
from tidelog.types import Codes, Discrete, Image, Spec, Vector

RULE = Kind("rule", 1)
LARGEST_FILE = 1 << 24  # bytes
DEEPEST = 2  # questions for one observation
FIELDS = ("kind", "schema", "name", "sentence", "rule", "fallback", "spec", "masks", "missing", "acting", "verdict",
          "origin", "versions", "files")  # fmt: skip
MISSING = " missing"  # ends the name of the flag of a filled value
Place: TypeAlias = tuple[str, int]  # a leaf, and a column of it


@dataclass(frozen=True)
class Question:
    """A question about one column: is a number below a threshold, or is a word this one?"""

    position: Place
    below: float | None  # of a number
    code: int | None  # of a word
    yes: Tree
    no: Tree

    def answers(self, leaves: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Whether the answer is yes, [B]."""
        values = leaves[self.position[0]][:, self.position[1]]
        if self.below is not None:
            return np.asarray(values.astype(np.float64) < self.below)
        return np.asarray(values == self.code)


Tree: TypeAlias = Question | int  # an action is a code


class Rule(BasePolicy):
    """Takes the action of a rule. Raises SpecError for actions that are not discrete.

    `fallback` are all actions, the best one first: where the action of the rule is not allowed, the first allowed one
    of these is taken.
    """

    is_recurrent = False
    reads_other_words: ClassVar[bool] = True
    can_sample: ClassVar[bool] = False  # sampling would change nothing

    def __init__(
        self,
        tree: Tree,
        spec: Spec,
        fallback: tuple[int, ...],
        name: str = "rule",
        origin: Mapping[str, Any] | None = None,
        acting: Acting | None = None,
        verdict: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(spec.action, Discrete):
            raise SpecError(f"a rule chooses one of several actions, these are {type(spec.action).__name__}")
        self.tree, self.spec, self.fallback, self.name = tree, spec, fallback, name
        self.origin = dict(origin or {})
        self._order = np.asarray(fallback)
        self._labels = spec.action.names or tuple(map(str, range(spec.action.n)))
        self.declare(acting, verdict)

    @property
    def sentence(self) -> str:
        """The rule in words: "if age < 40: A; else if village is north: B; else C"."""
        *cases, last = _cases(self.tree, lambda question: question_text(question, self.spec))
        words = [f"if {' and '.join(words)}: {self._labels[action]}" for words, action in cases]
        final = self._labels[last[1]]
        return "; else ".join([*words, final]) if words else f"always {final}"

    @property
    def manifest(self) -> dict[str, Any]:
        """Everything that the file of the rule holds, without its kind and checksum."""
        return {
            "name": self.name,
            "sentence": self.sentence,
            "rule": _tree_to_json(self.tree, self.spec, self._labels),
            "fallback": [self._labels[action] for action in self.fallback],
            "spec": self.spec.to_json(),
            **spec_notes(self.spec),
            "acting": self.acting,
            "verdict": self.verdict,
            "origin": self.origin,
            "versions": {"numpy": np.__version__},
        }

    @property
    def _learner(self) -> str:
        return self.name

    def notes(self) -> list[str]:
        """Return the rule as a sentence, and where it cannot be followed."""
        notes = [f"{self.name}: {self.sentence}"]
        if self.spec.masked:
            order = ", ".join(self._labels[action] for action in self.fallback)
            notes.append(f"where its action is not allowed, it takes the first allowed one of {order}")
        return notes

    def initial_state(self, count: int = 1) -> Any:
        """Raise SpecError: a rule has no recurrent state."""
        raise SpecError("a rule has no recurrent state", fix="call it without a state")

    def act(
        self, observation: Any, seed: int | None = None, mask: Any = None, state: Any = None
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return the actions as codes; with a seed also their probabilities, which are 1."""
        inputs = self._read(observation, mask)
        actions = self._chosen(inputs)
        likely = None if seed is None else np.ones(len(actions), np.float32)
        if inputs.single:
            return actions[0], None if likely is None else likely[0]
        return actions, likely

    def probabilities(self, observation: Any, mask: Any = None, state: Any = None) -> NDArray[Any]:
        """Return 1 for the action of the rule and 0 for the others, [A] or [B, A]."""
        inputs = self._read(observation, mask)
        chances = np.eye(len(self._labels), dtype=np.float32)[self._chosen(inputs)]
        return chances[0] if inputs.single else chances

    def q_values(self, observation: Any, action: Any = None) -> NDArray[Any]:
        """Raise SpecError: a rule has no values."""
        raise SpecError("a rule has no Q-values", fix="use a policy with a critic")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the rule does: its tree, its fallback, and how it reads observations."""
        facts = self.manifest
        return digest({name: facts[name] for name in ("rule", "fallback", "spec")})

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the rule as one JSON file; an older rule there is replaced with `overwrite`, ConfigError else."""
        target = Path(path)
        if target.exists() and not (overwrite and is_rule_file(target)):
            raise ConfigError(f"{target} exists, nothing was written", fix="choose another name, or add --overwrite")
        write_file(target, RULE.text(self.manifest, {}), ConfigError, parents=True)
        return target

    def _read(self, observation: Any, mask: Any) -> RawBatch:
        inputs = read_observation(observation, self.spec, padded=False, other_words=True)
        return read_mask(inputs, mask, self.spec)

    def _chosen(self, inputs: RawBatch) -> NDArray[np.int32]:
        """Codes of the allowed actions of the rule, [B]."""
        actions = follow(self.tree, inputs.leaves, inputs.rows)
        return actions if inputs.mask is None else allowed_actions(actions, inputs.mask, self._order)


def follow(tree: Tree, leaves: Mapping[str, NDArray[Any]], rows: int) -> NDArray[np.int32]:
    """Actions [B] of a tree."""
    if not isinstance(tree, Question):
        return np.full(rows, tree, np.int32)
    return np.where(tree.answers(leaves), follow(tree.yes, leaves, rows), follow(tree.no, leaves, rows))


def allowed_actions(actions: NDArray[np.int32], mask: NDArray[np.bool_], order: NDArray[np.int64]) -> NDArray[np.int32]:
    """The actions [B], or where `mask` [B, A] forbids one, the first allowed action of `order` [A]."""
    best = order[mask[:, order].argmax(axis=1)]
    return np.where(mask[np.arange(len(actions)), actions], actions, best).astype(np.int32)


def column_label(spec: Spec, position: Place) -> str:
    """The name of a column of the observation: that of the log, else the leaf with the position."""
    leaf: Any = spec.observation[position[0]]
    return str(leaf.names[position[1]]) if leaf.names else f"{position[0]}[{position[1]}]"


def question_text(question: Question, spec: Spec) -> str:
    """The question in words: "age < 40", "village is north", "income is missing"."""
    label = column_label(spec, question.position)
    leaf = spec.observation[question.position[0]]
    if question.below is None:
        words = leaf.vocabularies[question.position[1]] if isinstance(leaf, Codes) and leaf.vocabularies else ()
        code = int(question.code or 0)
        return f"{label} is {(words[code] or '(empty)') if words else code}"
    if isinstance(leaf, Vector) and label.endswith(MISSING) and label.removesuffix(MISSING) in dict(leaf.fills):
        return f"{label.removesuffix(MISSING)} is known"
    below = question.below
    number = str(int(below)) if below == int(below) and abs(below) < 1e6 else repr(float(below))  # 40, 0.25, 1e+06
    return f"{label} < {number}"


def _cases(tree: Tree, words: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """The conditions of each action in the order in which they are asked; the last has none of its own."""
    if not isinstance(tree, Question):
        yield before, tree
        return
    yield from _cases(tree.yes, words, (*before, words(tree)))
    yield from _cases(tree.no, words, before)


def _tree_to_json(tree: Tree, spec: Spec, labels: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(tree, Question):
        return {"action": labels[tree]}
    asked: dict[str, Any] = {"below": tree.below} if tree.below is not None else {"is": _word(spec, tree)}
    branches = {"yes": _tree_to_json(tree.yes, spec, labels), "no": _tree_to_json(tree.no, spec, labels)}
    return {"column": column_label(spec, tree.position), **asked, **branches}


def _word(spec: Spec, question: Question) -> str | int:
    leaf = spec.observation[question.position[0]]
    words = leaf.vocabularies[question.position[1]] if isinstance(leaf, Codes) and leaf.vocabularies else ()
    return words[int(question.code or 0)] if words else int(question.code or 0)


def columns_of(spec: Spec) -> dict[str, Place]:
    """The columns that a question may be about: numbers and words, by their labels; pictures have none."""
    places = [
        (name, column)
        for name, leaf in spec.observation.items()
        if isinstance(leaf, Vector | Codes)
        for column in range(leaf.size if isinstance(leaf, Vector) else len(leaf.sizes))
    ]
    return {column_label(spec, position): position for position in places}


def load_rule(path: str | Path) -> Rule:
    """Read the file of a rule; CheckpointError if it is missing, changed, or not a rule of its own spec."""
    try:
        text = read_regular(path, LARGEST_FILE)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}", fix="export the rule again") from error
    return rule_from(RULE.read(text, str(path)), str(path))


def rule_from(manifest: Mapping[str, Any], where: str) -> Rule:
    """The rule of a manifest; CheckpointError names the invalid part, and the file or folder `where` it is."""
    unknown = [name for name in manifest if name not in FIELDS]
    absent = [name for name in FIELDS[2:-1] if name not in manifest]
    if unknown or absent:
        found = f"the unknown field '{unknown[0]}'" if unknown else f"no '{absent[0]}'"
        raise CheckpointError(f"{where} has {found}", fix="export the rule again")
    spec = read_spec(manifest["spec"], where)
    if not isinstance(spec.action, Discrete) or any(
        not isinstance(leaf, Vector | Codes | Image) for leaf in spec.observation.values()
    ):
        raise CheckpointError(
            f"{where}: a rule chooses one of several actions by numbers and words", fix="export again"
        )
    labels = spec.action.names or tuple(map(str, range(spec.action.n)))
    codes = {label: code for code, label in enumerate(labels)}
    try:
        tree = _tree_from_json(manifest["rule"], spec, codes, DEEPEST)
        if not isinstance(manifest["fallback"], list):
            raise ValueError("'fallback' is not a list")
        fallback = tuple(_known(codes, label, "action") for label in manifest["fallback"])
        if sorted(fallback) != list(range(spec.action.n)):
            raise ValueError("'fallback' does not name every action once")
        if not isinstance(manifest["name"], str) or not isinstance(manifest["origin"], Mapping):
            raise ValueError("'name' or 'origin' has another type")
        return Rule(tree, spec, fallback, manifest["name"], manifest["origin"], manifest["acting"], manifest["verdict"])
    except (ValueError, ConfigError) as error:
        reason = error.problem if isinstance(error, ConfigError) else error
        raise CheckpointError(f"{where}: {reason}", fix="export the rule again") from error


def _tree_from_json(node: Any, spec: Spec, codes: Mapping[str, int], deepest: int) -> Tree:
    """The tree of plain values; ValueError names what is wrong."""
    if not isinstance(node, Mapping):
        raise ValueError("a part of the rule is not an object")
    if set(node) == {"action"}:
        return int(_known(codes, node["action"], "action"))
    kind = next((name for name in ("below", "is") if set(node) == {"column", name, "yes", "no"}), None)
    if kind is None:
        raise ValueError(f"a part of the rule has the fields {sorted(node)}: expected an action or a question")
    if deepest == 0:
        raise ValueError(f"the rule asks more than {DEEPEST} questions")
    position = _known(columns_of(spec), node["column"], "column")
    leaf, below, code = spec.observation[position[0]], None, None
    if kind == "below":
        below = node["below"]
        if not isinstance(leaf, Vector) or type(below) not in (int, float) or not math.isfinite(below):
            raise ValueError(f"'{node['column']}' is not compared with a number")
        below = float(below)
    else:
        code = _code(leaf, position[1], node["is"])
    yes, no = (_tree_from_json(node[name], spec, codes, deepest - 1) for name in ("yes", "no"))
    return Question(position, below, code, yes, no)


def _code(leaf: Any, column: int, level: Any) -> int:
    words = leaf.vocabularies[column] if isinstance(leaf, Codes) and leaf.vocabularies else ()
    if words:
        return int(_known({word: code for code, word in enumerate(words)}, level, "word"))
    if not isinstance(leaf, Codes) or type(level) is not int or not 0 <= level < leaf.sizes[column]:
        raise ValueError(f"{level!r:.100} is no code of its column")
    return level


def _known(known: Mapping[str, Any], name: Any, what: str) -> Any:
    """The entry of a name; ValueError with the nearest name for an unknown one."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"the {what} {name!r:.100} is unknown: {nearest(str(name), known)}")
    return known[name]


def is_rule_file(path: str | Path) -> bool:
    """Whether a path is the file of a rule, of any schema, damaged or not."""
    path = Path(path)
    if not path.is_file():
        return False
    with open_regular(path) as file:
        start = file.read(1)
    return start == b"{" and RULE.is_named_in(read_regular(path, LARGEST_FILE))
