"""Estimators of scikit-learn are judged as they act: matched to the log by names, within masks and bounds."""

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

import tidelog as tl
from tests.ope.cases import QUICK
from tests.ope.played import better, policy_of, treated
from tests.policies.permuted import permuted
from tidelog.envs.treatment import treatment
from tidelog.ope.policies import EstimatorPolicy, as_policy, target_of

pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.compose import make_column_transformer  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor  # noqa: E402

OFFERS, KINDS = ("call", "letter", "nothing"), ("new", "old")


def table(count=1_200, seed=0):
    """One decision a row: two numbers and a word, three labelled actions of known probability, and a reward."""
    rng = np.random.default_rng(seed)
    age, income, kind = rng.choice([30.5, 40.0, 61.0, 70.0], count), rng.integers(0, 2, count), rng.choice(KINDS, count)
    best = np.where(kind == "new", np.where(age > 50, 0, 1), 2)
    action = rng.integers(0, 3, count)
    reward = (action == best) + 0.1 * rng.normal(size=count)
    return pl.DataFrame(
        {
            "visit": np.arange(count), "age": age, "kind": kind, "income": income, "offer": np.asarray(OFFERS)[action],
            "reward": reward, "chance": np.full(count, 1 / 3), "best": np.asarray(OFFERS)[best],
        }
    )  # fmt: skip


def log_of(frame):
    columns = tl.Columns(
        episode="visit", observation=["age", "kind", "income"], categorical=["kind"], action="offer", reward="reward",
        propensity="chance", extra=["best"],
    )  # fmt: skip
    return tl.read_log(frame, columns)


@pytest.fixture(scope="module")
def halves():
    return log_of(table()).split(0.5)


@pytest.fixture(scope="module")
def numbers():
    """A log of arrays without names: three numbers and three actions."""
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(900, 3))
    action = rng.integers(0, 3, 900)
    reward = (action == seen.argmax(1)) + 0.1 * rng.normal(size=900)
    return tl.Log.from_arrays(
        observation=seen, action=action, actions=3, reward=reward, terminated=True, propensity=np.full(900, 1 / 3)
    )


WORDS = make_column_transformer((OneHotEncoder(), ["kind"]), remainder=StandardScaler())
PIPELINE = make_pipeline(WORDS, LogisticRegression())


def test_a_good_classifier_is_better_and_the_verdict_says_what_is_unknown(halves, tmp_path):
    train, held_out = halves
    earned = train.reward > 0.5
    model = PIPELINE.fit(train.features().filter(earned), train.action[earned])
    verdict = tl.judge(model, held_out, limits=QUICK, ledger=False)
    assert verdict.decision == "better"
    assert "always takes its most likely action" in verdict.advice
    assert verdict.context["sample"] is False
    assert verdict.context["policy"]["kind"] == "Pipeline(ColumnTransformer, LogisticRegression)"
    assert "unknown whether the policy learnt from these episodes" in verdict.paragraph
    assert "train it on one part of log.split() and judge it on the other" in verdict.paragraph
    assert [why.partition(",")[0].partition(";")[0] for why in verdict.blocks_gate] == [
        "it is unknown whether the policy learnt from these episodes",
        "the number of times these episodes were judged before is unknown",
    ]
    forest = RandomForestClassifier(10, random_state=0).fit(train.features().select("age", "income"), train.action)
    policies = {"forest": forest, "line": model}
    both = tl.judge(policies, held_out, sample=True, learnt_from="other data", limits=QUICK, ledger=tmp_path / "looks")
    assert both.better == ("line",)
    assert both["line"].context["sample"] is True
    assert both["line"].blocks_gate == ()
    assert "samples its actions" in both["line"].advice


ESTIMATORS = {
    "line": LogisticRegression(),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": RandomForestClassifier(20, random_state=0),
    "search": GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3]}, cv=2),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_probabilities_are_those_of_the_estimator(name, numbers):
    seen, action = np.asarray(numbers.observation["observation"], np.float64), numbers.action
    model = ESTIMATORS[name].fit(seen[:400], action[:400])
    policy = as_policy(model, numbers.spec)
    found = target_of(policy, numbers)
    expected = np.eye(3)[model.predict(seen)]
    np.testing.assert_array_equal(found.probabilities, expected)
    np.testing.assert_array_equal(found.logged, expected[np.arange(numbers.steps), action])
    assert target_of(policy, numbers, sample=True).probabilities == pytest.approx(model.predict_proba(seen))


class Wrapped(ClassifierMixin, BaseEstimator):
    """A tidelog policy with the interface of scikit-learn; its classes are labels in alphabetical order."""

    def __init__(self, policy=None):
        self.policy = policy

    def fit(self, features, labels):
        self.classes_ = np.unique(labels)
        self.feature_names_in_ = np.asarray(features.columns, object)
        return self

    def predict_proba(self, features):
        names, (words,) = list(self.policy.spec.action.names), self.policy.spec.observation["categorical"].vocabularies
        seen = {name: features[name].to_list() for name in features.columns}
        leaves = {
            "numeric": np.stack([seen[name] for name in self.policy.spec.observation["numeric"].names], axis=1),
            "categorical": np.asarray([[words.index(one)] for one in seen["kidneys"]]),
        }
        return self.policy.probabilities(leaves)[:, [names.index(one) for one in self.classes_]]

    def predict(self, features):
        return self.classes_[self.predict_proba(features).argmax(axis=1)]


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("order", ["same", "permuted"])
def test_the_probabilities_of_a_tidelog_policy_give_the_estimates_of_that_policy(sample, order):
    """Several steps an episode; the log has its actions, features and labels in another order than the classes."""
    log = treated().take_episodes(range(400))
    policy = policy_of(treatment(), better())
    log = log if order == "same" else permuted(log)
    model = Wrapped(policy).fit(log.features(), log.spec.action.names)
    one, two = (target_of(as_policy(each, log.spec), log, sample=sample) for each in (policy, model))
    assert two.logged == pytest.approx(one.logged, rel=1e-6)
    assert two.probabilities[log.position] == pytest.approx(one.probabilities[log.position], rel=1e-6)
    ours, theirs = (tl.estimate(each, log, sample=sample, model="tabular") for each in (policy, model))
    assert len(ours) > 5
    assert [row.estimate for row in theirs] == pytest.approx([row.estimate for row in ours], rel=1e-6)


def test_classes_are_labels_or_codes(halves):
    train, held_out = halves
    features, labels = train.features(), np.asarray(train.spec.action.names)[train.action]
    assert train.spec.action.names == OFFERS
    by_label, by_code = (
        target_of(EstimatorPolicy(PIPELINE.fit(features, one), held_out.spec), held_out)
        for one in (labels, train.action)
    )
    np.testing.assert_array_equal(by_label.probabilities, by_code.probabilities)
    some = np.isin(labels, ["letter", "nothing"])  # an action that the estimator never takes
    model = make_pipeline(WORDS, LogisticRegression()).fit(features.filter(some), labels[some])
    found = target_of(EstimatorPolicy(model, held_out.spec), held_out, sample=True)
    assert (found.probabilities[:, 0] == 0).all()
    assert (found.probabilities[:, 1:] > 0).all()


def actions(*names, n=0):
    """The spec of a log of one number and these actions."""
    return tl.types.Spec({"x": tl.types.Vector(1, ("x",))}, tl.types.Discrete(n or len(names), names))


class Classes:
    """A fitted classifier with these classes."""

    def __init__(self, classes):
        self.classes_ = np.asarray(classes) if not isinstance(classes, list) else classes

    def fit(self, features, action):
        return self

    def predict(self, features):
        raise NotImplementedError

    predict_proba = predict


@pytest.mark.parametrize(
    ("classes", "spec", "places"),
    [((1, 2), actions("0", "1", "2"), [1, 2]), ((1.0, 3.0), actions("3", "1"), [1, 0]), ((0, 1), actions(n=3), [0, 1]),
     (("2", "1"), actions("1", "2"), [1, 0]), ((False, True), actions("false", "true"), [0, 1]),
     ((0, 1, 2), actions("1", "2", "3"), [0, 1, 2]), ((1, 2, 3), actions("1", "2", "3"), [0, 1, 2])],
)  # fmt: skip
def test_the_action_of_each_class(classes, spec, places):
    assert EstimatorPolicy(Classes(classes), spec)._classes.tolist() == places


@pytest.mark.parametrize(
    ("classes", "spec", "expected"),
    [((1, 2), actions("1", "2", "3"), r"the classes 1, 2 can be codes or labels of this log's actions '1', '2', '3'"),
     (("a", "x"), actions("a", "b"), r"has the classes 'x', which are no actions of this log: expected the label"),
     ((0, 3), actions(n=3), r"has the classes 3, which are no actions of this log: expected codes from 0 to 2. fix"),
     ((0.5, 1.0), actions(n=3), r"has the classes 0.5, which"), (("1", "2"), actions(n=3), r"has the classes '1'"),
     (tuple(range(20)), actions(n=3), r"3, 4, 5, 6, 7, 8, 9, 10, ... \(17\), which"),
     ([np.arange(2), np.arange(2)], actions(n=2), "has several outputs: expected one class for each action. fix")],
)  # fmt: skip
def test_classes_that_are_no_actions_are_refused(classes, spec, expected):
    with pytest.raises(tl.SpecError, match=expected):
        EstimatorPolicy(Classes(classes), spec)


def test_columns_are_matched_by_name_and_else_by_number(halves):
    train, held_out = halves
    features = train.features()
    assert features.columns == ["age", "income", "kind"]
    shuffled = pd.DataFrame({name: features[name].to_numpy() for name in ("kind", "age", "income")})
    one, two = (make_pipeline(WORDS, LogisticRegression()).fit(each, train.action) for each in (features, shuffled))
    ours, theirs = (target_of(EstimatorPolicy(each, held_out.spec), held_out, sample=True) for each in (one, two))
    assert theirs.probabilities == pytest.approx(ours.probabilities, abs=1e-4)
    some = LogisticRegression().fit(features.select("income"), train.action)
    assert target_of(EstimatorPolicy(some, held_out.spec), held_out).logged.shape == (held_out.steps,)
    for model, expected in (
        (LogisticRegression().fit(np.zeros((3, 2)), [0, 1, 2]),
         "LogisticRegression was fitted on 2 columns, this log's observation has 3: 'age', 'income', 'kind'. fix: fit"),
        (LogisticRegression().fit(shuffled[["age"]].rename(columns={"age": "agee"}), train.action),
         r"fitted on the column 'agee' \(1 missing\), which this log's observation does not have: did you mean 'age'"),
    ):  # fmt: skip
        with pytest.raises(tl.SpecError, match=expected):
            tl.judge(model, held_out)
    unnamed = LogisticRegression().fit(np.zeros((3, 3)), [0, 1, 2])
    with pytest.raises(tl.SpecError, match=r"LogisticRegression.predict failed with ValueError: could not convert .*"):
        tl.judge(unnamed, held_out)


def test_numbers_without_names_are_read_in_the_order_of_the_log(numbers):
    model = Numbered().fit(None, numbers.action)
    found = target_of(EstimatorPolicy(model, numbers.spec), numbers, sample=True).probabilities
    seen = np.asarray(numbers.observation["observation"], np.float64)
    assert found == pytest.approx(softmax(seen, axis=1))


# Masks.


@pytest.fixture(scope="module")
def masked(numbers):
    rng = np.random.default_rng(3)
    mask = rng.random((numbers.steps, 3)) < 0.6
    mask[np.arange(numbers.steps), numbers.action] = True
    chances = 1.0 / mask.sum(1)
    return tl.Log.from_arrays(
        observation=numbers.observation["observation"], action=numbers.action, actions=3, reward=numbers.reward,
        terminated=True, action_mask=mask, propensity=chances,
    )  # fmt: skip


def test_an_action_that_is_not_allowed_is_never_taken(masked):
    seen, mask = masked.features().to_numpy(), masked.transitions.mask
    model = LogisticRegression().fit(seen, masked.action)
    found = target_of(EstimatorPolicy(model, masked.spec), masked)
    chances = np.where(mask, model.predict_proba(seen), 0.0)
    assert (found.probabilities.argmax(1) == chances.argmax(1)).all()
    assert (chances.argmax(1) != model.predict(seen)).mean() > 0.1
    sampled = target_of(EstimatorPolicy(model, masked.spec), masked, sample=True)
    assert sampled.probabilities == pytest.approx(chances / chances.sum(1, keepdims=True))


def notes(model, log, sample=False):
    """What a verdict says about the difference between the estimator and the policy that is judged."""
    here = log.transitions
    return EstimatorPolicy(model, log.spec).notes(here.observation, here.mask, sample)


def test_the_verdict_says_how_often_a_mask_changed_the_action(masked):
    seen, mask = masked.features().to_numpy(), masked.transitions.mask
    model = LogisticRegression().fit(seen, masked.action)
    lost = (~mask[np.arange(masked.steps), model.predict(seen)]).mean()
    said = f"LogisticRegression predicts an action that is not allowed in {lost:.1%} of decisions: it is judged as a"
    assert notes(model, masked)[0].startswith(said)
    lost = np.where(mask, 0.0, model.predict_proba(seen)).sum(1).mean()
    said = f"LogisticRegression gives {lost:.1%} of its probability to actions that are not allowed: it is judged as a"
    assert notes(model, masked, sample=True)[0].startswith(said)


def test_where_no_allowed_action_is_known_the_estimator_is_refused(masked):
    seen = masked.features().to_numpy()
    two = LogisticRegression().fit(seen[masked.action < 2], masked.action[masked.action < 2])
    count = int((~masked.transitions.mask[:, :2].any(1)).sum())
    assert count > 10
    with pytest.raises(tl.SpecError, match=rf"gives no probability to any allowed action in {count} rows: expected"):
        target_of(EstimatorPolicy(two, masked.spec), masked)


class Constant(BaseEstimator):
    """Predicts the first class, or what its name says."""

    def __init__(self, returned="first"):
        self.returned = returned

    def fit(self, features, action):
        self.classes_ = np.unique(action)
        return self

    def predict(self, features):
        return np.full(len(features), 7 if self.returned == "other" else self.classes_[0])

    def predict_proba(self, features):
        if self.returned == "ones":
            return np.ones((len(features), 3))
        return np.tile([0.5, 0.5] if self.returned == "few" else [0.2, 0.5, 0.3], (len(features), 1))


class Numbered(Constant):
    """Names columns as LightGBM does where none are named."""

    feature_names_in_ = np.asarray(["Column_0", "Column_1", "Column_2"], object)

    def predict_proba(self, features):
        return softmax(features, axis=1)


def test_a_predict_that_is_not_the_likeliest_class_is_followed_where_it_is_allowed(numbers, masked):
    model = Constant().fit(None, numbers.action)
    assert (target_of(EstimatorPolicy(model, numbers.spec), numbers).probabilities == [1, 0, 0]).all()
    chosen, mask = (
        target_of(EstimatorPolicy(model, masked.spec), masked).probabilities.argmax(1),
        masked.transitions.mask,
    )
    assert (chosen == np.where(mask[:, 0], 0, np.where(mask[:, 1], 1, 2))).all()


@pytest.fixture(scope="module")
def doses():
    rng = np.random.default_rng(4)
    seen = rng.uniform(-1, 1, (1_500, 2))
    action = np.clip(rng.normal(0, 0.5, (1_500, 1)), -2, 2)
    density = np.exp(-0.5 * (action[:, 0] / 0.5) ** 2) / (0.5 * np.sqrt(2 * np.pi))
    reward = -((action[:, 0] - 0.5 * seen[:, 0]) ** 2)
    return tl.Log.from_arrays(
        observation=seen, action=action, reward=reward, bounds=[[-2.0], [2.0]], terminated=True, propensity=density
    )


@pytest.mark.full
@pytest.mark.usefixtures("few_updates")
def test_a_regressor_is_a_deterministic_policy(doses):
    seen, first = doses.features(), doses.features()["observation_0"].to_numpy()
    tree = DecisionTreeRegressor(max_depth=4, random_state=0).fit(seen, np.where(first > 0.99, 3.0, 0.5 * first))
    alone = tl.judge(tree, doses, limits=QUICK, ledger=False)
    assert alone.decision == "unsupported"
    said = "a deterministic continuous action has no probability: no logged action is exactly equal to it"
    assert said in alone.reasons
    assert "bandwidth=0.2" in alone.paragraph
    assert "sample=True" not in alone.paragraph
    smooth = tl.judge(tree, doses, bandwidth=0.2, limits=QUICK, ledger=False)
    assert smooth.decision == "better"
    share = (np.asarray(tree.predict(seen)) > 2).mean()
    assert 0 < share < 0.02
    said = f"predicts actions outside the bounds of the log's actions in {share:.1%} of decisions"
    assert said in smooth.paragraph
    assert said in smooth.context["notes"][0]
    chosen = target_of(EstimatorPolicy(tree, doses.spec), doses).actions[:, 0, 0]
    assert chosen == pytest.approx(np.minimum(tree.predict(seen), 2.0))


@pytest.mark.usefixtures("few_updates")
def test_actions_of_a_regressor_are_clipped_and_the_verdict_says_so(doses):
    seen = doses.features()
    far = LinearRegression().fit(seen, 4.0 * seen["observation_0"])
    chosen = target_of(EstimatorPolicy(far, doses.spec), doses).actions
    assert (chosen.min(), chosen.max()) == (-2.0, 2.0)
    share = (np.abs(4.0 * np.asarray(seen["observation_0"])) > 2).mean()
    said = f"LinearRegression predicts actions outside the bounds of the log's actions in {share:.1%} of decisions: it"
    assert notes(far, doses)[0].startswith(said)
    near = LinearRegression().fit(seen, seen["observation_0"])
    assert notes(near, doses) == []
    density = tl.estimate(near, doses, ["wis"], bandwidth=0.2, model="none").rows()
    assert tl.estimate(near, doses, ["wis"], bandwidth=0.2, model="none", sample=True).rows() == density


def test_what_cannot_be_judged_is_refused(numbers, doses):
    seen, action = numbers.features().to_numpy(), numbers.action
    two = tl.Log.from_arrays(
        observation=np.zeros((40, 1)), action=np.ones((40, 2), int), reward=np.zeros(40), terminated=True
    )
    infinite = LinearRegression().fit(doses.features(), np.zeros(doses.steps))
    infinite.intercept_ = np.inf
    for model, log, sample, expected in (
        (LogisticRegression(), numbers, False, "LogisticRegression is not fitted: expected a fitted classifier. fix"),
        (make_pipeline(StandardScaler(), RidgeClassifier()).fit(seen, action), numbers, True,
         r"Pipeline\(StandardScaler, RidgeClassifier\) has no predict_proba: .* fix: wrap it in sklearn.calibration"),
        (LinearRegression().fit(seen, action), numbers, False, "LinearRegression has no predict_proba: expected a cl"),
        (LogisticRegression().fit(seen, action), doses, False, "is a classifier, and this log has Continuous actions"),
        (LogisticRegression().fit(seen, action), two, False, "supports one discrete action or continuous actions; th"),
        (DecisionTreeRegressor(), doses, False, "DecisionTreeRegressor.predict failed with NotFittedError: .* fix: fi"),
        (LinearRegression().fit(doses.features(), np.zeros((doses.steps, 2))), doses, False,
         r"predict returned shape \(1500, 2\): expected finite numbers \[rows, actions\] = \(1500, 1\). fix: fi"),
        (infinite, doses, False, r"predict returned shape \(1500,\): expected finite numbers"),
        (LogisticRegression, numbers, False, "expected a policy, found LogisticRegression. fix: pass .* estimator"),
        (Constant("other").fit(seen, action), numbers, False, "predict returned values that are not in its classes_."),
        (Constant("ones").fit(seen, action), numbers, True, "predict_proba returned no probabilities: expected n"),
        (Constant("few").fit(seen, action), numbers, True,
         r"returned shape \(900, 2\): expected numbers \[rows, classes\] = \(90"),
    ):  # fmt: skip
        with pytest.raises(tl.SpecError, match=expected):
            tl.estimate(model, log, sample=sample, model="none")
