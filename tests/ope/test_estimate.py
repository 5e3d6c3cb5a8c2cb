"""Estimators by name: which apply, what they say, what support they have, and what is answered where they cannot."""

from pathlib import Path

import numpy as np
import pytest

from tests.ope.cases import Always, Told, bandit, episodes, treated
from tests.ope.made import evidence_of
from tests.shared import shared
from tidelog import ConfigError, Log, LogError, SpecError, estimate, judge, read_log
from tidelog.envs.treatment import clinician, exact_value
from tidelog.ope import policy_evidence as module
from tidelog.ope.estimators import possible_returns
from tidelog.ope.policy_evidence import table

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def log():
    return treated(clinician(), 1000)


def test_the_promised_call_works(log):
    found = estimate(Told(clinician()), log, ["wis", "dr", "fqe"], model="tabular")
    assert [row.name for row in found] == ["wis", "dr", "fqe"]
    mean = log.statistics().returns["mean"]
    assert found["wis"].estimate == pytest.approx(mean)
    for row in found:
        assert row.low < row.estimate < row.high
        # 3.9 standard errors: a right estimate fails for 1 in 11,000 seeds
        assert row.estimate == pytest.approx(exact_value(clinician()), abs=0.06)
        assert row.contributions.mean() == pytest.approx(row.estimate)
        assert row.method.startswith("bca, 1,000 replicates")
        assert (row.level, row.estimated) == (0.95, False)
        assert row.support.effective_sample_size == pytest.approx(1000)
    with pytest.raises(ConfigError, match="did you mean 'wis'"):
        _ = found["wiss"]


def test_without_names_all_that_apply_are_listed(log):
    assert [row.name for row in estimate(Told(clinician()), log, model="tabular")] == [
        "is", "wis", "pdis", "wpdis", "dr", "wdr", "fqe", "mwl", "drl",
    ]  # fmt: skip
    assert [row.name for row in table(bandit(), None)] == [
        "ips", "snips", "clipped_ips", "dm", "switch_dr", "dros", "dr", "wdr",
    ]  # fmt: skip
    bare = bandit(model=None, model_target=None, model_all=None)
    assert [row.name for row in table(bare, None)] == ["ips", "snips", "clipped_ips"]


def test_a_single_name_is_a_list_of_one_and_no_name_is_asked_twice(log):
    assert [row.name for row in estimate(Told(clinician()), log, "wis", model="tabular")] == ["wis"]
    assert len(estimate(Told(clinician()), log, ["wis", "wis"], model="tabular")) == 1


def test_models_are_fitted_only_where_they_are_read(log, monkeypatch):
    asked = []
    real = module.evidence_of
    monkeypatch.setattr(
        module, "evidence_of", lambda *a, **k: asked.append(k["model"]) or real(*a, **{**k, "model": "tabular"})
    )
    estimate(Told(clinician()), log, ["wis"])
    estimate(Told(clinician()), log, ["wdr"])
    estimate(Told(clinician()), log, ["wdr"], model="tabular")
    assert asked == ["none", None, "tabular"]


def test_sequential_estimators_take_one_step_logs():
    one = bandit()
    by_name = table(one, ["wis", "is", "pdis", "wpdis", "fqe", "snips", "ips", "dm"])
    assert by_name["wis"].estimate == pytest.approx(by_name["snips"].estimate)
    assert by_name["wpdis"].estimate == pytest.approx(by_name["snips"].estimate)
    assert by_name["is"].estimate == by_name["pdis"].estimate == pytest.approx(by_name["ips"].estimate)
    assert by_name["fqe"].estimate == pytest.approx(by_name["dm"].estimate)


@pytest.mark.parametrize(("names", "evidence", "said"), [
    (["snips"], episodes, "'snips' supports episodes of one step; the longest here has 3. fix: use 'wis' or 'wdr'"),
    (["drl"], lambda: episodes(occupancy=None), "'drl' needs occupancy ratios"),
    (["wdr"], lambda: episodes(model=None), "'wdr' needs a model of action values"),
])  # fmt: skip
def test_estimators_that_have_no_answer_say_why(names, evidence, said):
    with pytest.raises(SpecError, match=said.replace("(", r"\(")):
        table(evidence(), names)


def test_the_clipped_share_is_that_of_the_estimators_that_cut(monkeypatch):
    one = bandit(behaviour=np.where(np.arange(600) < 6, 0.01, 0.5))
    found = table(one, None)
    cut = ((one.target / one.behaviour) > 10).mean()
    assert cut > 0
    assert {row.name: row.support.clipped_share for row in found} == {
        "ips": 0, "snips": 0, "clipped_ips": cut, "dm": 0, "switch_dr": cut, "dros": 0, "dr": 0, "wdr": 0,
    }  # fmt: skip
    assert found["clipped_ips"].estimate != found["ips"].estimate


def test_no_weight_left_is_no_number():
    target = np.where(np.arange(1200) % 3 == 2, 0.0, 0.5)
    row = table(episodes(target=target), ["wpdis"])["wpdis"]
    assert np.isnan(row.estimate)
    assert row.note == "no weight is left at some step"
    assert row.to_json()["name"] == "wpdis"


def test_what_no_episode_can_earn_is_marked():
    """Episodes of one to three steps with rewards of 0 to 2: at discount 1/2 they earn 0 to 3.5."""
    sizes, reward = [1, 2, 3] * 20, np.tile([0.0, 2.0, 1.0, 0.0, 0.0, 1.0], 20)
    even = {"reward": reward, "target": np.full(120, 0.5), "behaviour": np.full(120, 0.5), "discount": 0.5}
    for value, marked in ((3.4, False), (3.6, True), (-0.1, True)):
        rated = evidence_of(sizes, **even, model=np.full(120, value), model_target=np.full(120, value))
        assert possible_returns(rated) == (0.0, 3.5)
        note = table(rated, ["fqe"])["fqe"].note
        assert ("outside the range that an episode can earn (0 to 3.5)" in note) == marked
    assert possible_returns(evidence_of(sizes, **{**even, "reward": reward - 2.0})) == (-3.5, 0.0)
    assert possible_returns(evidence_of(sizes, **{**even, "reward": reward + 1.0})) == (1.0, 5.25)


@pytest.mark.parametrize(("asked", "said"), [
    ({"names": ["wsi"]}, "did you mean 'wis'"), ({"names": []}, "no estimator was named"),
    ({"level": 1.0}, "level = 1"), ({"replicates": 0}, "replicates = 0"), ({"discount": -1}, "discount = -1"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(asked, said, log):
    with pytest.raises(ConfigError, match=said):
        estimate(Told(clinician()), log, **asked)
    with pytest.raises(LogError, match="expected a log"):
        estimate(Told(clinician()), [1, 2])


def test_levels_count(log):
    narrow, wide = (
        estimate(Told(clinician()), log, ["wis"], level=level, model="tabular")["wis"] for level in (0.5, 0.95)
    )
    assert narrow.low > wide.low  # 0 of 40 other seeds fail
    assert wide.method == "bca, 1,000 replicates"


class Shares:
    """Fixed shares of items, by the position that is filled [P, A]."""

    def __init__(self, shares, column=0):
        self.shares, self.column = shares, column

    def probabilities(self, observation, mask=None):
        return self.shares[observation["categorical"][:, self.column]]


def clicks(behavior_policy, campaign):
    path = shared(f"data/obd_small/{behavior_policy}/{campaign}/{campaign}.csv.gz")
    return read_log(path, EXAMPLES / f"open_bandit_{campaign}.toml")


def by_position(log):
    where, items = log.transitions.observation["categorical"][:, 0], log.spec.action.n
    return np.stack([np.bincount(log.action[where == p], minlength=items) / (where == p).sum() for p in range(3)])


@pytest.mark.full
def test_open_bandit_says_that_it_cannot_say():
    """Thompson sampling's log of the women's campaign knows next to nothing of choosing evenly."""
    found = judge(Shares(np.full((3, 46), 1 / 46)), clicks("bts", "women"), model="tabular")
    assert found.decision == "unsupported"
    assert found.support.effective_sample_size == pytest.approx(2.1, abs=0.05)
    assert any("effective sample size 2.1 of" in reason for reason in found.reasons)


@pytest.mark.full
def test_open_bandit_covers_what_was_measured():
    """The even log of the men's campaign, asked about Thompson sampling's shares, which were clicked in 0.69%."""
    found = judge(Shares(by_position(clicks("bts", "men"))), clicks("random", "men"), model="tabular")
    assert found.decision != "unsupported"
    assert found.support.effective_sample_size == pytest.approx(2869, abs=1)
    assert found.estimates["ips"].estimate == pytest.approx(0.00566, abs=5e-6)
    assert found.estimates["snips"].estimate == pytest.approx(0.00574, abs=5e-6)
    assert found.estimates["wdr"].low < 0.0069 < found.estimates["wdr"].high
    assert found.difference.low < 0.0069 - 0.0046 < found.difference.high


def test_shares_by_hand():
    """Two actions, four steps: weights 2 and 2/3 as told by the policy."""
    log = Log.from_arrays(
        observation=np.zeros((4, 1), int), action=[0, 1, 0, 1], reward=[1.0, 0.0, 1.0, 1.0], terminated=True,
        propensity=[0.25, 0.75] * 2,
    )  # fmt: skip
    found = estimate(Always(0.5, 0.5), log, ["ips", "snips"], model="tabular")
    assert found["ips"].estimate == pytest.approx((2 + 0 + 2 + 2 / 3) / 4, rel=1e-6)
    assert found["snips"].estimate == pytest.approx((2 + 0 + 2 + 2 / 3) / (2 + 2 + 4 / 3), rel=1e-6)
