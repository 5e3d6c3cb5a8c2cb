"""Simple rules of a log: the best single action for everybody, and the best rule of at most two questions.

What a learnt policy has to beat, as counting rules are for recommendations. Each decision of the log becomes one row
with a doubly robust score of every action `a` (Dudik, Langford & Li 2011; Zhou, Athey & Wager 2023),

    score(a) = Q(x, a) + 1[logged = a] / propensity * (G - Q(x, logged)),

where G is the discounted return from this decision on, as it was recorded, and Q its cross-fitted regression; the
propensities are those of the log, else the judge's estimates. `rule_search` finds the rule with the largest sum.

In episodes of several decisions the score is the value of the action now, and of the behaviour policy's decisions
afterwards: the sum over the steps is the first-order gain of a policy that changes the behaviour policy's decisions
(the policy gradient at the behaviour policy), which is cheap and has no products of weights. The single action is there
the one with the highest weighted doubly robust estimate of playing it in every step, among those with enough effective
episodes; without any, the one with the largest score.

Letters: `N` decisions, `E` episodes, `A` actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog._files import write_folder
from tidelog.data.log import Log
from tidelog.data.statistics import Sketch, returns_to_go
from tidelog.errors import CheckpointError, ConfigError, SpecError
from tidelog.ope.decide import DEFAULTS
from tidelog.ope.estimators import Supports, weighted_dr
from tidelog.ope.evidence import (
    LARGEST_SEED,
    Evidence,
    Floats,
    Target,
    Values,
    check_kind,
    check_log,
    clusters_of,
    episode_folds,
)
from tidelog.ope.networks import network_values
from tidelog.ope.policy_evidence import ModelChoice, choose_model
from tidelog.ope.propensities import propensities_of
from tidelog.ope.tabular import tabular_values
from tidelog.ope.verdict import log_of_run
from tidelog.policies.policy import as_declared
from tidelog.policies.rule_search import best_trees
from tidelog.runtime.rule import RULE, Rule, allowed_actions, load_rule
from tidelog.training.fit import EpisodeSplit
from tidelog.training.record import Record
from tidelog.types import Codes, Discrete, Spec, Vector, check_seed

MOST_ACTIONS = 20
FOLDS = 5  # of the cross-validation of the number of questions
CONSTANT, TREE = "best single action", "small rule"


def has_rules(spec: Spec) -> bool:
    """Whether rules exist: for one of at most 20 actions, and observations without pictures."""
    few = isinstance(spec.action, Discrete) and spec.action.n <= MOST_ACTIONS
    return few and all(isinstance(leaf, Vector | Codes) for leaf in spec.observation.values())


def simple_rules(
    log: Log,
    *,
    discount: float = 1.0,
    propensities: Any = None,
    model: str | None = None,
    seed: int = 0,
    origin: Mapping[str, Any] | None = None,
) -> dict[str, Rule]:
    """Return the best single action and the best rule of at most two questions of a log, by their names.

    They are policies: `tl.judge` judges them, on episodes that are not in this log. The small rule is absent where no
    question is worth asking. `propensities` and `model` are as in `tl.judge`; `origin` is stored with the rules, None
    for a sketch of this log, by which the judge knows what they learnt from. SpecError for actions that are not
    discrete, or more than 20; LogError for fewer than two episodes.

    Example:
        >>> train, held_out = tl.collect("treatment", episodes=600, seed=0).split(0.5, seed=0)
        >>> rules = tl.simple_rules(train)
        >>> list(rules)[0]
        'best single action'
        >>> print(rules["best single action"].sentence.split()[0])
        always
    """
    check_kind(log)
    check_seed(seed, LARGEST_SEED)
    check_log(log, discount)
    if not has_rules(log.spec):
        raise SpecError(
            f"simple rules choose one of at most {MOST_ACTIONS} actions by numbers and words; this log "
            "has other observations or actions",
            fix="judge the policy without rules",
        )
    log = replace(log.with_known_rewards(), weight=None)
    plan = choose_model(log, model, None, seed)
    behaviour = propensities_of(log, plan.folds, propensities, states=plan.states, seed=seed, clones=False).logged
    values, returns = _values(log, plan, discount, seed)
    mask = None if log.action_mask is None else np.asarray(log.transitions.mask)
    action = np.asarray(log.action)
    scores = np.array(values.all_actions)
    scores[np.arange(log.steps), action] += (returns - values.logged) / behaviour
    scores *= log.discounts(discount)[:, None]
    order = _order(scores, mask)
    if mask is not None:  # where an action is not allowed, a rule takes the best allowed one
        rows = np.arange(log.steps)
        plays = (_played(action, mask, order, log.steps) for action in range(scores.shape[1]))
        scores = np.stack([scores[rows, played] for played in plays], axis=1)
    leaves = {name: np.asarray(leaf)[np.asarray(log.position)] for name, leaf in log.observation.items()}
    groups = min(FOLDS, int(log.clusters.max(initial=0)) + 1)
    folds = episode_folds(log, groups, seed)[np.asarray(log.episode)]
    constant, tree = best_trees(leaves, log.spec, scores, folds)
    single = _single_action(log, values, behaviour, float(discount), mask, order)
    facts = {"learnt_from": Sketch.of(log).to_json()} if origin is None else dict(origin)
    fallback = tuple(order.tolist())
    first = constant if single is None else single
    rules = {CONSTANT: Rule(first, log.spec, fallback, CONSTANT, facts)}
    if not isinstance(tree, int):
        rules[TREE] = Rule(tree, log.spec, fallback, TREE, facts)
    return rules


def _values(log: Log, plan: ModelChoice, discount: float, seed: int) -> tuple[Values, Floats]:
    """The cross-fitted regression of the returns from each decision on, and these returns [N].

    The mean return at the same step of all episodes is subtracted: it is the same for all actions.
    """
    returns = returns_to_go(np.asarray(log.reward, np.float64), log.starts, log.step_discounts(discount))
    step = np.asarray(log.step)
    returns -= (np.bincount(step, weights=returns) / np.bincount(step))[step]
    steps = np.arange(log.steps)
    last = np.ones(log.steps, bool)
    decisions = replace(
        log, reward=returns.astype(np.float32), terminated=last, truncated=~last, episode=steps.astype(np.int32),
        step=np.zeros(log.steps, np.int32), episode_ids=steps, origin=None,
    )  # fmt: skip
    folds = plan.folds[np.asarray(log.episode)]
    space: Any = log.spec.action
    stored = len(next(iter(log.observation.values())))
    allowed = np.ones((stored, space.n)) if log.action_mask is None else np.asarray(log.action_mask, np.float64)
    uniform = allowed / np.maximum(allowed.sum(1, keepdims=True), 1.0)
    target = Target(uniform[np.asarray(log.position), np.asarray(log.action)], uniform)
    targets = [target] * (int(folds.max()) + 1)
    if plan.states is not None:
        return tabular_values(decisions, plan.states, folds, targets, 1.0), returns
    if plan.model == "none":
        nothing = np.zeros((log.steps, space.n))
        return Values(nothing[:, 0], nothing[:, 0], nothing), returns
    return network_values(decisions, folds, [targets], 1.0, seed)[0], returns


def _order(scores: Floats, mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """All actions, the best one first: by their mean score against the other allowed actions of the same rows."""
    allowed = np.ones(scores.shape, bool) if mask is None else mask
    gain = scores - (scores * allowed).sum(1, keepdims=True) / allowed.sum(1, keepdims=True)
    mean = (gain * allowed).sum(0) / np.maximum(allowed.sum(0), 1)
    return np.argsort(-mean, kind="stable")


def _played(action: int, mask: NDArray[np.bool_] | None, order: NDArray[np.int64], rows: int) -> NDArray[np.int32]:
    """What the rule of one action plays in each row, [N]."""
    always = np.full(rows, action, np.int32)
    return always if mask is None else allowed_actions(always, mask, order)


def _single_action(
    log: Log, values: Values, behaviour: Floats, discount: float, mask: NDArray[np.bool_] | None, order: Any
) -> int | None:
    """The action with the highest estimated return if it is played in every step; None where none has support."""
    # in one-step episodes the scores are these estimates
    if log.steps == len(log.episode_ids) or values.all_actions is None:
        return None
    rows, known = np.arange(log.steps), dict[int, float]()
    reward = np.asarray(log.reward, np.float64)
    for action in order.tolist():
        played = _played(action, mask, order, log.steps)
        evidence = Evidence(
            starts=np.asarray(log.starts, np.int64),
            reward=reward,
            target=(played == np.asarray(log.action)).astype(np.float64),
            behaviour=behaviour,
            discount=discount,
            elapsed=None if discount == 1.0 else log.spacing,
            model=values.logged,
            model_target=values.all_actions[rows, played],
            clusters=clusters_of(log),
        )
        size = Supports(evidence).of("wdr").effective_sample_size
        estimate = weighted_dr(evidence).estimate
        if size >= DEFAULTS.effective_episodes and np.isfinite(estimate):
            known[action] = estimate
    return max(known, key=lambda action: known[action]) if known else None


# The simple rules of a run: learnt from its training episodes once, and stored in its folder, one JSON file each.

FOLDER = "rules"
FILES = {CONSTANT: "constant.json", TREE: "tree.json"}
WORDS = {"constant": CONSTANT, "tree": TREE}  # of commands


def rules_of_run(folder: Path, record: Record) -> dict[str, Rule]:
    """The simple rules of a run by their names; they act as they were judged, if they were.

    They are read from the run's folder. If it has none, they are learnt from the run's training episodes and stored.
    Raises ConfigError for actions without rules, ConfigError and LogError where the log is absent or has changed.
    """
    where = folder / FOLDER
    if not where.is_dir():
        if not has_rules(record.spec):
            found = f"{folder} has no simple rules: they choose one of at most 20 actions"
            raise ConfigError(found, fix="drop --rule")
        found = f"the log of {folder} was in memory only, and simple rules learn from it"
        log = log_of_run(record, str(folder), ConfigError(found, fix="drop --rule"), "restore it")
        options = record.options
        part = EpisodeSplit(log, options.held_out, options.split_seed, options.selection_share, options.data_share)
        origin = record.origin(run=folder.name)
        rules = simple_rules(part.training_log, seed=options.seeds[0], origin=origin)
        files = {FILES[name]: RULE.text(rule.manifest, {}) for name, rule in rules.items()}
        write_folder(where, files, lambda _: {}, CheckpointError)
    stored = {name: load_rule(where / file) for name, file in FILES.items() if (where / file).exists()}
    return {name: as_declared(folder, rule) for name, rule in stored.items()}


def rule_of_run(folder: Path, word: str) -> Rule:
    """The rule of a run that a command names, `constant` or `tree`, which is the single action without questions."""
    if word not in WORDS:
        raise ConfigError(f"--rule {word}", f"one of {', '.join(WORDS)}", "use --rule tree")
    rules = rules_of_run(folder, Record.read(folder))
    return rules.get(WORDS[word]) or rules[CONSTANT]
