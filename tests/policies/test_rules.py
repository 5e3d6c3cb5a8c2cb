"""Simple rules: the exact search, the sentence, the file, and a rule as a policy like any other."""

import itertools
import json
import re

import numpy as np
import pytest

import tidelog as tl
from tidelog import ConfigError, Log, SpecError, runtime
from tidelog._files import digest
from tidelog.errors import CheckpointError
from tidelog.ope import propensities
from tidelog.policies.batch_inference import act_on_known, act_on_table
from tidelog.policies.rule_search import SMALLEST, best_trees, bin_column, shortest_between, thresholds
from tidelog.policies.rule_search import _Search as Search
from tidelog.runtime.rule import Question, Rule, columns_of, follow, load_rule
from tidelog.types import Codes, Discrete, Spec, Vector

pytestmark = pytest.mark.usefixtures("few_updates")

SPEC = Spec(
    {"numeric": Vector(2, ("age", "income")), "categorical": Codes((3,), ("village",), (("east", "north", "west"),))},
    Discrete(3, ("A", "B", "C")),
)
AGE, VILLAGE = ("numeric", 0), ("categorical", 0)
TREE = Question(AGE, 40.0, None, 0, Question(VILLAGE, None, 1, 1, 2))


def rows(count, seed=0, levels=6):
    generator = np.random.default_rng(seed)
    numbers = generator.integers(0, levels, (count, 2)).astype(np.float32)
    return {"numeric": numbers, "categorical": generator.integers(0, 3, (count, 1)).astype(np.int32)}


def value(tree, leaves, scores):
    return scores[np.arange(len(scores)), follow(tree, leaves, len(scores))].sum()


def brute_force(leaves, scores, questions):
    """The largest value of a tree of two questions at most, by trying all of them; leaves hold 1% of the rows."""
    least = max(SMALLEST * len(scores), 1.0)

    def best_below(mine, deeper):
        found = scores[mine].sum(0).max()
        if deeper:
            for question in questions:
                yes = question.answers(leaves)
                if min((mine & yes).sum(), (mine & ~yes).sum()) >= least:
                    found = max(found, best_below(mine & yes, deeper - 1) + best_below(mine & ~yes, deeper - 1))
        return found

    return [best_below(np.ones(len(scores), bool), deeper) for deeper in range(3)]


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_the_best_tree_of_all(seed):
    leaves = rows(120, seed)
    scores = np.random.default_rng([seed, 1]).standard_normal((120, 3))
    binned = [bin_column(leaves, SPEC, place) for place in columns_of(SPEC).values()]
    questions = [one.question(at, 0, 0) for one in binned for at in range(len(one.cuts or one.codes))]
    assert len(questions) == 5 + 5 + 3
    trees = Search(scores, np.arange(120) % 2).trees(binned)
    for depth, best in enumerate(brute_force(leaves, scores, questions)):
        assert value(trees[depth][0], leaves, scores) == pytest.approx(best, rel=1e-12)
    half = np.arange(120) % 2 == 1  # the second set of rows is all but the first fold
    there = {name: leaf[half] for name, leaf in leaves.items()}
    best = brute_force(there, scores[half], questions)[2]
    assert value(trees[2][1], there, scores[half]) == pytest.approx(best, rel=1e-12)


def test_as_many_questions_as_are_worth_asking():
    leaves = rows(2_000)
    noise = np.random.default_rng(5).standard_normal((2_000, 3))
    folds = np.arange(2_000) % 5
    old, north = leaves["numeric"][:, 0] >= 3, leaves["categorical"][:, 0] == 1
    two = noise.copy()
    two[np.arange(2_000), np.where(~old, 0, np.where(north, 1, 2))] += 2.0
    constant, tree = best_trees(leaves, SPEC, two, folds)
    expected = Question(AGE, 3.0, None, 0, Question(VILLAGE, None, 1, 1, 2))
    assert tree == expected, "of equal trees the one with fewer questions"
    assert constant in (0, 2)
    one = noise.copy()
    one[np.arange(2_000), np.where(old, 2, 0)] += 2.0
    assert best_trees(leaves, SPEC, one, folds)[1] == Question(AGE, 3.0, None, 0, 2)
    none = noise.copy()
    none[:, 1] += 2.0
    assert best_trees(leaves, SPEC, none, folds) == (1, 1)
    assert best_trees(leaves, SPEC, np.zeros((2_000, 3)), folds) == (0, 0), "ties go to the simpler rule"


@pytest.mark.parametrize(("rare", "is_asked"), [(8, False), (12, True)])
def test_no_action_of_a_tree_has_few_rows(rare, is_asked):
    """A rare word with high scores is no reason for a question of its own, at the root or below it."""
    leaves = rows(1_000)
    leaves["categorical"] = np.where(np.arange(1_000) < rare, 2, np.arange(1_000) % 2)[:, None].astype(np.int32)
    leaves["numeric"][:rare, 0] = 5.0
    binned = [bin_column(leaves, SPEC, place) for place in columns_of(SPEC).values()]
    for depth, old in ((1, np.zeros(1_000, bool)), (2, leaves["numeric"][:, 0] >= 3)):
        scores = np.zeros((1_000, 3))
        scores[:rare, 2] = 5.0
        scores[np.arange(1_000), np.where(old, 1, 0)] += 1.0
        tree = Search(scores, np.arange(1_000) % 5).trees(binned)[depth][0]
        assert (follow(tree, leaves, 1_000)[:rare] == 2).all() == is_asked


def test_of_equal_trees_the_one_with_fewer_questions_is_taken():
    spec = Spec({"a word": SPEC.observation["categorical"], "numeric": SPEC.observation["numeric"]}, SPEC.action)
    leaves = {"a word": rows(2_000)["categorical"], "numeric": rows(2_000)["numeric"]}
    old, north = leaves["numeric"][:, 0] >= 3, leaves["a word"][:, 0] == 1
    scores = np.zeros((2_000, 3))
    scores[np.arange(2_000), np.where(~old, 0, np.where(north, 1, 2))] = 1.0
    _, tree = best_trees(leaves, spec, scores, np.arange(2_000) % 5)
    assert tree == Question(("numeric", 0), 3.0, None, 0, Question(("a word", 0), None, 1, 1, 2))


def test_thresholds_are_short_and_separate_neighbours():
    assert thresholds(np.asarray([1.0, 2.0, 2.0, 5.0])) == (2.0, 5.0)
    values = np.random.default_rng(0).lognormal(3, 1, 5_000)
    cuts = thresholds(values)
    shares = [float((values < cut).mean()) for cut in cuts]
    assert len(cuts) == 32
    assert shares == pytest.approx(np.arange(1, 33) / 33, abs=0.001)
    assert thresholds(np.zeros(9)) == ()
    for low, high in itertools.pairwise([-3e6, -1.25, -1e-9, 0.0, 1e-7, 0.3, 0.30001, 41.0, 47.0, 1e30]):
        between = shortest_between(low, high)
        assert low < between <= high
    assert (shortest_between(39.2, 41.7), shortest_between(0.114, 0.126)) == (40.0, 0.12)


def test_a_rule_acts_on_raw_observations_and_on_other_words():
    rule = Rule(TREE, SPEC, (2, 0, 1))
    young = {"age": 39, "income": 1, "village": "north"}
    assert str(rule(young)) == "A"
    assert str(rule({**young, "age": 40})) == "B"
    assert str(rule({**young, "age": 40, "village": "south"})) == "C", "a word that the log does not have"
    assert rule.probabilities(young).tolist() == [1.0, 0.0, 0.0]
    assert str(rule(young, mask=[False, True, True])) == "C", "the best allowed action"
    actions, chances = rule.act({name: [value] * 2 for name, value in young.items()}, seed=1)
    assert (actions.tolist(), chances.tolist()) == ([0, 0], [1.0, 1.0])
    with pytest.raises(SpecError, match="'age' is missing or infinite"):
        rule({**young, "age": np.nan})
    with pytest.raises(SpecError, match="missing features age"):
        rule({"income": 1, "village": "north"})
    assert rule.notes() == ["rule: if age < 40: A; else if village is north: B; else C"]


def test_the_file_of_a_rule_is_a_page_that_every_runtime_reads(tmp_path):
    rule = Rule(TREE, SPEC, (2, 0, 1), "small rule", {"run": "iql"}, "mode")
    path = rule.save(tmp_path / "rule.json")
    content = json.loads(path.read_text())
    assert content["sentence"] == rule.sentence
    assert content["rule"] == {
        "column": "age", "below": 40.0, "yes": {"action": "A"},
        "no": {"column": "village", "is": "north", "yes": {"action": "B"}, "no": {"action": "C"}},
    }  # fmt: skip
    assert len(path.read_text().splitlines()) < 110
    for again in (load_rule(path), runtime.load(path), tl.load_policy(path)):
        assert (again.tree, again.fallback, again.name, again.acting) == (TREE, (2, 0, 1), "small rule", "mode")
        assert again.origin == {"run": "iql"}
        leaves = rows(50, 3, levels=80)
        assert (again.act(leaves)[0] == rule.act(leaves)[0]).all()
    with pytest.raises(ConfigError, match="exists, nothing was written"):
        rule.save(path)
    rule.save(path, overwrite=True)


@pytest.mark.parametrize(("change", "message"), [
    (lambda c: c["rule"].update(column="ages"), "the column 'ages' is unknown: did you mean 'age'"),
    (lambda c: c["rule"].update(below="40"), "'age' is not compared with a number"),
    (lambda c: c["rule"]["no"].update({"is": "south"}), "the word 'south' is unknown"),
    (lambda c: c["rule"]["yes"].update(action="D"), "the action 'D' is unknown"),
    (lambda c: c["rule"]["no"].update(no=c["rule"]["no"] | {"no": c["rule"]["no"].copy()}), "more than 2 questions"),
    (lambda c: c["rule"].pop("yes"), "expected an action or a question"),
    (lambda c: c.update(rule=[]), "a part of the rule is not an object"),
    (lambda c: c.update(fallback=["A", "A", "B"]), "does not name every action once"),
    (lambda c: c.update(more=1), "the unknown field 'more'"),
    (lambda c: c.pop("spec"), "no 'spec'"),
    (lambda c: c.update(acting="sometimes"), "expected 'mode', 'sample' or None"),
])  # fmt: skip
def test_a_wrong_file_is_refused_by_name(tmp_path, change, message):
    path = Rule(TREE, SPEC, (2, 0, 1)).save(tmp_path / "rule.json")
    content = json.loads(path.read_text())
    change(content)
    content.pop("sha256")
    path.write_text(json.dumps({**content, "sha256": digest(content)}))
    with pytest.raises(CheckpointError, match=re.escape(message)):
        load_rule(path)


def test_a_changed_file_is_refused(tmp_path):
    path = Rule(TREE, SPEC, (2, 0, 1)).save(tmp_path / "rule.json")
    path.write_text(path.read_text().replace("40.0", "41.0"))
    with pytest.raises(CheckpointError, match="its checksum differs"):
        load_rule(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_rule(tmp_path / "other.json")


def trial(count=3_000, seed=0, masks=False):
    """Random actions; A is better for the young, B in the north among the others, C for the rest."""
    generator = np.random.default_rng(seed)
    age, village = generator.integers(18, 80, count), generator.integers(0, 3, count)
    mask = np.ones((count, 3), bool)
    if masks:
        mask[np.arange(count), generator.integers(0, 3, count)] = generator.random(count) < 0.5
    chances = mask / mask.sum(1, keepdims=True)
    action = (chances.cumsum(1) > generator.random(count)[:, None]).argmax(1)
    best = np.where(age < 40, 0, np.where(village == 1, 1, 2))
    reward = generator.standard_normal(count) + 2.0 * (action == best)
    return Log.from_arrays(
        observation={"age": age[:, None].astype(np.float32), "village": village[:, None].astype(np.int32)},
        action=action,
        reward=reward.astype(np.float32),
        terminated=np.ones(count, bool),
        propensity=chances[np.arange(count), action],
        action_mask=mask if masks else None,
        actions=3,
    ), best


@pytest.mark.sample("True")
@pytest.mark.parametrize("masks", [False, True])
def test_the_rules_of_a_log(masks):
    log, best = trial(masks=masks)
    rules = tl.simple_rules(log, model="tabular")
    assert list(rules) == ["best single action", "small rule"]
    leaves = {name: leaf[log.position] for name, leaf in log.observation.items()}
    agrees = (rules["small rule"].act(leaves)[0] == best).mean()
    assert agrees > 0.97
    mask = None if log.action_mask is None else np.asarray(log.transitions.mask)
    played = rules["small rule"].act(leaves, mask=mask)[0]
    assert mask is None or mask[np.arange(len(played)), played].all()
    assert rules["small rule"].origin["learnt_from"]["episodes"] == 3_000


def test_rules_of_episodes_play_in_every_step():
    """Episodes of 3 steps: the first action earns most in each, and the second one when the number is low."""
    generator = np.random.default_rng(0)
    number, action = generator.integers(0, 10, (3_000, 1)) / np.float32(10), generator.integers(0, 3, 3_000)
    reward = (action == np.where(number[:, 0] < 0.4, 1, 0)) + 0.1 * generator.standard_normal(3_000)
    log = Log.from_arrays(
        observation=number, action=action, reward=reward.astype(np.float32), episode=np.arange(3_000) // 3,
        terminated=np.arange(3_000) % 3 == 2, propensity=np.full(3_000, 1 / 3), actions=3,
    )  # fmt: skip
    rules = tl.simple_rules(log, discount=0.9)
    assert rules["best single action"].tree == 0
    tree = rules["small rule"].tree
    assert (tree.yes, tree.no) == (1, 0)
    assert tree.below == pytest.approx(0.4, abs=0.03)


def test_an_action_that_is_not_allowed_counts_as_the_one_in_its_place():
    """C is best where it is allowed, and A elsewhere, which the rule of C plays there without a question."""
    generator = np.random.default_rng(0)
    closed = generator.integers(0, 2, 3_000)
    mask = np.ones((3_000, 3), bool)
    mask[closed == 1, 2] = False
    chances = mask / mask.sum(1, keepdims=True)
    action = (chances.cumsum(1) > generator.random(3_000)[:, None]).argmax(1)
    reward = np.where(closed == 1, action == 0, 0.5 * (action == 2)) + 0.1 * generator.standard_normal(3_000)
    log = Log.from_arrays(
        observation=closed[:, None].astype(np.int32), action=action, reward=reward.astype(np.float32),
        terminated=np.ones(3_000, bool), propensity=chances[np.arange(3_000), action], action_mask=mask, actions=3,
    )  # fmt: skip
    rules = tl.simple_rules(log)
    assert {name: (rule.tree, rule.fallback) for name, rule in rules.items()} == {"best single action": (2, (2, 0, 1))}


def test_a_table_may_have_words_that_the_log_does_not_have(tmp_path):
    rule = Rule(Question(VILLAGE, None, 0, 1, 2), SPEC, (0, 1, 2))
    (tmp_path / "rows.csv").write_text("age,income,village\n1,2,east\n1,2,south\n1,2,\n")
    acted = act_on_table(rule, tmp_path / "rows.csv")
    assert acted["action"].to_list() == ["B", "C", "C"]
    known, skipped = act_on_known(rule, tmp_path / "rows.csv")
    assert (known["action"].to_list(), len(skipped)) == (["B", "C", "C"], 0)


@pytest.mark.sample("True")
@pytest.mark.parametrize("recorded", [True, False])
def test_scores_weigh_decisions_of_a_behavior_that_knew_more(recorded):
    """C is best for everybody, but the ill got it more often, who earn less: by plain means A looks best."""
    generator = np.random.default_rng(1)
    ill = generator.random(6_000) < 0.5
    chances = np.where(ill[:, None], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1])
    action = (chances.cumsum(1) > generator.random(6_000)[:, None]).argmax(1)
    gain = np.asarray([0.0, -0.5, 0.5])[action]
    reward = gain - 3.0 * ill + 0.3 * generator.standard_normal(6_000)
    log = Log.from_arrays(
        observation={"ill": ill[:, None].astype(np.int32), "noise": generator.random((6_000, 1)).astype(np.float32)},
        action=action, reward=reward.astype(np.float32), terminated=np.ones(6_000, bool), actions=3,
        propensity=chances[np.arange(6_000), action] if recorded else None,
    )  # fmt: skip
    means = [reward[action == one].mean() for one in range(3)]
    assert np.argmax(means) == 0, "the plain means mislead"
    rules = tl.simple_rules(log, model="none" if recorded else None)
    assert rules["best single action"].tree == 2
    assert list(rules) == ["best single action"]


def test_a_rule_plays_in_an_environment():
    train = tl.collect("treatment", episodes=1_000, seed=0)
    rules = tl.simple_rules(train, model="tabular")
    logged = np.add.reduceat(train.reward, train.starts[:-1]).mean()
    returns = {name: tl.rollout(rule, "treatment", episodes=400, seed=1).mean() for name, rule in rules.items()}
    assert min(returns.values()) > logged + 0.1
    log = tl.collect("treatment", rules["best single action"], episodes=5, seed=0)
    assert len(np.unique(log.action)) == 1


def test_rules_need_few_discrete_actions():
    log = Log.from_arrays(
        observation=np.zeros((30, 1), np.float32), action=np.arange(30) % 21, reward=np.zeros(30, np.float32),
        terminated=np.ones(30, bool), actions=21,
    )  # fmt: skip
    with pytest.raises(SpecError, match="at most 20 actions"):
        tl.simple_rules(log)


def test_no_network_imitates_decisions_whose_probabilities_are_recorded(monkeypatch):
    random = np.random.default_rng(0)
    log = tl.Log.from_arrays(
        observation={"x": random.normal(size=400)}, action=random.integers(0, 2, 400), reward=random.normal(size=400),
        terminated=True, propensity=np.full(400, 0.5), actions=2,
    )  # fmt: skip
    monkeypatch.setattr(propensities, "cloned", lambda log, seed: pytest.fail("a clone that nobody reads"))
    assert tl.simple_rules(log, model="none")
