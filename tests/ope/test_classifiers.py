"""Propensities by boosted trees and by other classifiers: better on tables of words, calibrated, chosen, refused."""

from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import QUICK, Always
from tidelog.ope import propensities as classifiers
from tidelog.ope.decide import broken, preconditions_of
from tidelog.ope.evidence import episode_folds
from tidelog.ope.judge import judge
from tidelog.ope.ledger import Ledger
from tidelog.ope.propensities import Fit, clone_by_classifier, propensities_of
from tidelog.ope.text import quality
from tidelog.types import MultiDiscrete

sklearn = pytest.importorskip("sklearn")
from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.linear_model import LogisticRegression, RidgeClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402


def shop(count=3_000, seed=0):
    """A table of words and numbers, and a behaviour policy with sharp rules: each row's true chances [N, 3]."""
    rng = np.random.default_rng(seed)
    words, age = rng.integers(0, 12, (count, 2)), rng.uniform(20, 80, count)
    favourite = np.where((words[:, 0] % 3 == 0) & (age > 50), 0, np.where(words[:, 1] % 2 == 0, 1, 2))
    chances = np.full((count, 3), 0.05) + 0.85 * np.eye(3)[favourite]
    action = (chances.cumsum(1) > rng.random((count, 1))).argmax(1)
    reward = (action == favourite) + 0.1 * rng.normal(size=count)
    log = tl.Log.from_arrays(
        observation={"number": age[:, None], "word": words}, categorical=["word"], action=action, actions=3,
        reward=reward, episode=np.arange(count), terminated=np.ones(count, bool),
    )  # fmt: skip
    return log, chances


@pytest.fixture(scope="module", autouse=True)
def _few_rounds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classifiers, "ROUNDS", 60)
        yield


@pytest.fixture(scope="module")
def log():
    return shop()[0]


@pytest.fixture(scope="module")
def trees(log):
    return propensities_of(log, episode_folds(log, 2, 0), "trees")


def test_trees_find_rules_of_words(log, trees):
    chances = shop()[1]
    assert (trees.by, trees.estimated) == ("trees", True)
    assert trees.all_actions.sum(1) == pytest.approx(1.0)
    shares = np.bincount(log.action) / log.steps
    assert np.abs(trees.all_actions - chances).mean() < 0.06 < 0.2 < np.abs(shares - chances).mean()
    truth = -np.log(chances[np.arange(log.steps), log.action]).mean()
    assert truth < trees.fit.loss < truth + 0.08 < 0.7 < trees.fit.constant
    assert trees.fit.mean_weight == pytest.approx(1.0, abs=0.15)
    assert trees.fit.calibrated


def test_an_episode_is_never_predicted_by_a_model_of_its_own_fold(log):
    """With actions that are pure noise nothing can be learnt: a model that saw them would seem to know them."""
    rng = np.random.default_rng(5)
    noise = tl.Log.from_arrays(
        observation=rng.normal(size=(800, 4)), action=rng.integers(0, 3, 800), actions=3, reward=rng.normal(size=800),
        episode=np.arange(800),
    )  # fmt: skip
    found = propensities_of(noise, episode_folds(noise, 2, 0), "trees").fit
    assert found.loss > found.constant - 0.01
    assert found.loss < found.constant + 0.1  # calibrated on held-out episodes: not much worse than the shares


PIPELINE = make_pipeline(StandardScaler(), LogisticRegression())


def test_any_classifier_may_be_the_model(log):
    found = propensities_of(log, episode_folds(log, 2, 0), PIPELINE)
    assert found.by == "classifier"
    assert found.fit.loss < found.fit.constant - 0.2
    assert not hasattr(PIPELINE, "classes_")  # a copy was fitted


def test_actions_of_other_folds_and_masks_have_their_place(log):
    learnt = np.flatnonzero(np.asarray(log.action) != 1)[:400]  # episodes without action 1
    chances = clone_by_classifier(log, learnt, 0, LogisticRegression()).probabilities
    assert (chances[:, 1] > 0).all()
    assert chances[:, 1].max() < 1e-3
    only = np.flatnonzero(np.asarray(log.action) == 2)[:50]
    assert (clone_by_classifier(log, only, 0).probabilities[:, 2] > 0.99).all()
    mask = np.ones((log.steps, 3), bool)
    mask[np.arange(log.steps), (np.asarray(log.action) + 1) % 3] = False
    seen = log.transitions.observation
    masked = tl.Log.from_arrays(
        observation=seen["number"], action=log.action, actions=3, reward=log.reward, episode=np.arange(log.steps),
        action_mask=mask,
    )  # fmt: skip
    chances = clone_by_classifier(masked, np.arange(500), 0).probabilities
    assert (chances[~mask] == 0).all()
    assert chances.sum(1) == pytest.approx(1.0)


def test_the_better_model_is_taken_and_a_miscalibrated_one_is_not(log, trees, monkeypatch):
    real = classifiers._of_clones
    fits = {"trees": Fit(0.5, 1.0, 1.0), "network": Fit(0.6, 1.0, 1.0)}

    def told(*arguments):
        found = real(*arguments)
        return replace(found, fit=fits[found.by])

    monkeypatch.setattr(classifiers, "_of_clones", told)
    monkeypatch.setattr(classifiers, "_clones", lambda *a: trees.clones)
    monkeypatch.setattr(classifiers, "clone_by_classifier", lambda *a: trees.clones[0])
    folds = episode_folds(log, 2, 0)
    assert propensities_of(log, folds, "best").by == "trees"
    fits["trees"] = Fit(0.7, 1.0, 1.0)
    assert propensities_of(log, folds, "best").by == "network"
    fits["trees"] = Fit(0.5, 1.0, 1.6)
    assert propensities_of(log, folds, "best").by == "network"
    fits["trees"] = None  # how well it fits is unknown
    fits["network"] = Fit(9.0, 1.0, 1.6)
    assert propensities_of(log, folds, "best").by == "network"


@pytest.mark.full
def test_a_verdict_says_by_what_they_were_estimated_and_how_well(log, tmp_path):
    options = {"limits": QUICK, "model": "none", "learnt_from": "other data", "ledger": tmp_path / "looks.jsonl"}
    found = judge(Always(0.2, 0.6, 0.2), log, propensities="trees", **options)
    assert found.context["propensities_by"] == "trees"
    fit = found.context["propensities_fit"]
    said = f"they miss the logged decisions by {fit['loss']:.2f} nats on average"
    assert "estimated by boosted trees that were trained to imitate the behaviour policy" in found.paragraph
    assert said in found.paragraph
    assert f"less than the {fit['constant']:.2f} of always stating the same shares" in found.paragraph
    judge(Always(0.2, 0.6, 0.2), log, propensities=LogisticRegression(), **options)
    judge(Always(0.2, 0.6, 0.2), log, propensities=LogisticRegression(), **options)
    looks = [look.settings["propensities"] for look in Ledger.of(log, tmp_path / "looks.jsonl").looks]
    assert looks[0] == "trees"
    assert len(looks) == 2
    assert looks[1].startswith("classifier ")


def test_a_verdict_names_the_classifier_and_says_how_well_it_predicts(log):
    options = {"limits": QUICK, "model": "none", "learnt_from": "other data", "ledger": False}
    found = judge(Always(0.2, 0.6, 0.2), log, propensities=PIPELINE, **options)
    assert found.context["propensities_by"] == "classifier"
    assert found.context["propensities_classifier"] == "Pipeline(StandardScaler, LogisticRegression)"
    said = "by a classifier, Pipeline(StandardScaler, LogisticRegression), that was trained to imitate the behaviour"
    assert f"{said} policy" in found.paragraph
    fit = found.context["propensities_fit"]
    assert f"they miss the logged decisions by {fit['loss']:.2f} nats on average" in found.paragraph


def test_a_step_without_a_seed_gets_that_of_the_fold(log):
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(5, max_depth=4))
    one, two = (clone_by_classifier(log, np.arange(300), 7, forest).probabilities for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - clone_by_classifier(log, np.arange(300), 8, forest).probabilities).max() > 0
    assert forest.get_params()["randomforestclassifier__random_state"] is None


def test_weights_that_are_wrong_on_average_are_said_with_the_way_to_better_ones():
    good = "miss the logged decisions by 0.50 nats on average, 50% less than the 1.00 of always stating the same shares"
    assert quality(Fit(0.5, 1.0, 1.4), "network").endswith(good)
    assert quality(Fit(0.5, 1.0, 0.2), "counts").endswith(good)  # some actions are never taken
    said = "with them a uniform choice has a mean weight of 2.6 (expected at most 1.00)"
    assert quality(Fit(0.5, 1.0, 2.6), "network").endswith(
        f"{said}: propensities='best' (--propensities best) also tries boosted trees"
    )
    assert quality(Fit(0.5, 1.0, 2.6), "trees").endswith(said)
    assert "no less than the 1.00" in quality(Fit(1.2, 1.0, 1.0), "trees")


class Broken(BaseEstimator):
    """Returns what are no probabilities, or fails."""

    def __init__(self, how="sums"):
        self.how = how

    def fit(self, numbers, action):
        if self.how == "fails":
            raise RuntimeError("no room")
        self.classes_ = np.unique(action)
        return self

    def predict_proba(self, numbers):
        return np.ones((len(numbers), len(self.classes_)))


class Rigid:
    """Cannot be copied."""

    def fit(self, numbers, action):
        return self

    def predict_proba(self, numbers):
        return np.ones((len(numbers), 1))


@pytest.mark.parametrize(
    ("source", "expected"),
    [(Broken(), "without probabilities of the actions: expected 3,000 rows over 3 classes, each with the sum 1"),
     (Broken("fails"), "Broken failed with RuntimeError: no room"),
     (Rigid(), "Rigid failed with TypeError: Cannot clone .*: expected a classifier with get_params, set_params, fit"),
     (RidgeClassifier(), "RidgeClassifier has no predict_proba: expected a classifier with probabilities. fix: wrap"),
     ("tree", "expected None, 'logged', 'estimated', 'trees', 'best', a declaration such as 'shares', a classifier")],
)  # fmt: skip
def test_classifiers_that_do_not_do_are_refused(source, expected, log):
    with pytest.raises(tl.ConfigError, match=expected):
        propensities_of(log, episode_folds(log, 2, 0), source)


def test_logs_that_trees_cannot_read_are_refused(log):
    continuous = tl.collect("point-mass", episodes=4, seed=0)
    with pytest.raises(tl.SpecError, match=r"expected discrete actions, found Continuous. fix: use propensities='est"):
        propensities_of(continuous, episode_folds(continuous, 2, 0), "trees")
    pictures = tl.Log.from_arrays(
        observation=np.zeros((40, 8, 8, 3), np.uint8), action=np.arange(40) % 2, actions=2, reward=np.zeros(40),
        episode=np.arange(40),
    )  # fmt: skip
    with pytest.raises(tl.SpecError, match="'observation' is a picture: expected columns of a table"):
        propensities_of(pictures, episode_folds(pictures, 2, 0), "trees")
    choices = tl.Log.from_arrays(
        observation=np.zeros((40, 1)), action=np.ones((40, 2), int), reward=np.zeros(40), episode=np.arange(40),
    )  # fmt: skip
    assert isinstance(choices.spec.action, MultiDiscrete)
    found = preconditions_of(
        Always(0.2, 0.6, 0.2), choices, np.arange(40.0), sample=True, bandwidth=None, propensities="trees"
    )
    assert "propensities" in [one.rule for one in broken(found)]


def test_without_scikit_learn_the_line_that_installs_it_is_said(log, monkeypatch):
    monkeypatch.setattr(classifiers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(tl.ConfigError, match=r"propensities = 'trees' needs scikit-learn. fix: .*install"):
        propensities_of(log, episode_folds(log, 2, 0), "trees")


def test_episodes_of_one_cluster_leave_none_to_calibrate_on(log):
    one = replace(log, cluster=np.zeros(log.steps, int))
    chances = clone_by_classifier(one, np.arange(500), 0).probabilities
    assert chances.sum(1) == pytest.approx(1.0)
    several = clone_by_classifier(log, np.arange(500), 0).probabilities
    assert chances.max(1).mean() > several.max(1).mean()  # neither the number of rounds nor the temperature is chosen
