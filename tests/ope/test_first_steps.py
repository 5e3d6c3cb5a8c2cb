"""The return of an episode's first steps: its exact value, what its verdict says, and when it is advised."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import QUICK, Always, Told, best_treatments, mostly, treated
from tests.ope.test_verdict import Copies, dominated
from tests.training.runs import bc, begin, finish
from tidelog.envs.treatment import treatment
from tidelog.ope.judge import judge
from tidelog.ope.ledger import Ledger
from tidelog.ope.propensities import cut_log
from tidelog.runtime.way_of_acting import advice_on, verdict_line


@pytest.fixture(scope="module")
def patients():
    """1,500 patients, each treatment with its chance under a cautious clinician, and that clinician."""
    chances = mostly(best_treatments(), 0.3)
    return treated(chances, 1_500), chances


def first(log, steps):
    """The rows of the first steps, by hand."""
    return np.flatnonzero(log.step < steps)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_cut_log_has_the_first_steps_and_what_followed_them(steps, patients):
    log, _ = patients
    cut, rows = cut_log(log, steps), first(log, steps)
    lengths = np.diff(log.starts)
    assert (np.diff(cut.starts) == np.minimum(lengths, steps)).all()
    assert (cut.episode_ids == log.episode_ids).all()
    whole, part = log.transitions[rows], cut.transitions
    for name in log.observation:
        assert (part.observation[name] == whole.observation[name]).all()
        assert (part.next_observation[name] == whole.next_observation[name]).all()
    for name in ("action", "reward", "propensity", "terminated", "step", "episode"):
        assert (np.asarray(getattr(cut, name)) == np.asarray(getattr(log, name))[rows]).all(), name
    last = cut.starts[1:] - 1
    assert (cut.truncated[last] == ~cut.terminated[last]).all()
    assert cut.truncated.sum() == (lengths > steps).sum() > 0


def test_masks_and_clusters_are_cut_too():
    rng = np.random.default_rng(0)
    mask = rng.random((12, 3)) < 0.8
    mask[:, 0] = True
    seen = rng.normal(size=(12, 2)).astype(np.float32)
    log = tl.Log.from_arrays(
        observation=seen, action=np.zeros(12, int), actions=3, reward=np.arange(12.0), episode=np.arange(12) // 4,
        terminated=np.arange(12) % 4 == 3, action_mask=mask, cluster=np.repeat([5, 5, 7], 4),
        extra={"row": np.arange(12)},
    )  # fmt: skip
    cut, rows = cut_log(log, 2), np.array([0, 1, 4, 5, 8, 9])
    assert (cut.transitions.mask == mask[rows]).all()
    assert len(cut.action_mask) == 9  # and of the observations that followed
    assert (cut.extra["row"] == rows).all()
    assert (cut.clusters == [0, 0, 1]).all()


@pytest.mark.parametrize("model", ["tabular"])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_the_interval_holds_the_exact_value_of_these_steps(steps, model, patients):
    log, chances = patients
    problem, policy = replace(treatment(), horizon=steps), mostly(best_treatments(), 0.6)
    truth = problem.value_of(policy) - problem.value_of(chances)
    found = judge(Told(policy), log, model=model, limits=QUICK, ledger=False, first_steps=steps)
    rewards = np.asarray(log.reward)[first(log, steps)].sum() / 1_500
    assert found.behavior_policy.estimate == pytest.approx(rewards)
    assert found.difference.low < truth < found.difference.high
    assert found.decision in ("better", "no difference shown")
    assert f"over its {'first decision' if steps == 1 else f'first {steps} decisions'}" in found.estimand
    assert found.context["first_steps"] == steps


def debt(count=600):
    """Episodes of two decisions: action 1 earns 1 at once and costs 5 at the next step, whatever is done there."""
    rng = np.random.default_rng(3)
    action = rng.integers(0, 2, 2 * count)
    reward = np.where(np.arange(2 * count) % 2 == 0, action, -5.0 * np.roll(action, 1))
    seen = np.stack([np.arange(2 * count) % 2, np.where(np.arange(2 * count) % 2, np.roll(action, 1), 0)], axis=1)
    return tl.Log.from_arrays(
        observation=seen, action=action, actions=2, reward=reward, propensity=np.full(2 * count, 0.5),
        episode=np.arange(2 * count) // 2, terminated=np.arange(2 * count) % 2 == 1,
    )  # fmt: skip


def test_a_debt_that_comes_later_is_said_wherever_the_verdict_is():
    log = debt()
    options = {"limits": QUICK, "model": "tabular", "ledger": False, "learnt_from": "other data"}
    assert judge(Always(0.1, 0.9), log, **options).decision == "worse"
    found = judge(Always(0.1, 0.9), log, first_steps=1, **options)
    assert found.decision == "better"
    assert found.advice.startswith("Use it for the first decision of an episode only: it is better than the logged ")
    later = "600 later decisions (50.0% of all) and what follows from them are in no number"
    assert f"the first decision of 600 recorded episodes. {later}" in found.paragraph
    assert later in found.reasons[1]
    assert "more in the first decision of an episode than the behaviour policy did" in found.paragraph
    (why,) = found.blocks_gate
    assert why == "only the first decision of an episode was judged; what follows may be worse"
    line = verdict_line(found.summary)
    assert "Use it for the first decision of an episode only" in line
    assert "of an episode, only the first decision counted" in line.partition("Verdict of")[2]
    content = json.loads(json.dumps(found.to_json()))
    assert content["context"]["first_steps"] == 1
    assert content["advice"] == found.advice
    both = judge({"greedy": Always(0.1, 0.9), "even": Copies(0.5)}, log, first_steps=1, **options)
    assert both.advice.startswith("Use greedy for the first decision of an episode only")


def test_advice_says_how_many_decisions_were_judged():
    assert advice_on("better", "mode", True, 3) == (
        "Use it for the first 3 decisions of an episode only: it is better than the logged decisions over the first 3 "
        "decisions of an episode if it always takes its most likely action."
    )
    assert "of an episode only, and only if it did not learn from the judged episodes: then it is better" in advice_on(
        "better", "sample", False, 3
    )
    assert "over the first decision of an episode" in advice_on("worse", "mode", True, 1)
    assert "how good it is over the first 3 decisions" in advice_on("unsupported", "mode", True, 3)
    assert advice_on("better", "sample", False).startswith(
        "Use it only if it did not learn from the judged episodes: then it is better"
    )


@pytest.mark.full
def test_the_advice_to_ask_a_shorter_question_can_be_followed():
    log = dominated()
    options = {"limits": QUICK, "model": "tabular", "ledger": False, "learnt_from": "other data"}
    advised = "judge only the first 4 decisions of each episode, which the log can weigh and which says nothing about"
    for too_many in (None, 8, 5):
        found = judge(Copies(0.95), log, first_steps=too_many, **options)
        assert found.decision == "unsupported"
        assert advised in found.next_step
        assert "(first_steps=4, --first-steps 4)" in found.next_step
    assert judge(Copies(0.95), log, first_steps=4, **options).decision == "better"


def test_it_is_not_advised_where_it_would_not_help():
    log = debt(40)  # too few episodes for any question
    found = judge(Always(0.1, 0.9), log, limits=QUICK, model="tabular", ledger=False)
    assert found.decision == "unsupported"
    assert "first_steps" not in found.paragraph


def test_wrong_propensities_are_not_hidden_by_a_shorter_question():
    rng = np.random.default_rng(1)
    log = tl.Log.from_arrays(
        observation=rng.integers(0, 2, (3_000, 1)), action=rng.integers(0, 2, 3_000), actions=2,
        reward=rng.normal(size=3_000), propensity=np.full(3_000, 0.505), episode=np.arange(3_000) // 20,
    )  # fmt: skip
    found = judge(Always(0.5, 0.5), log, limits=QUICK, model="tabular", ledger=False)
    assert found.decision == "unsupported"
    assert "the behaviour policy's probabilities are wrong" in found.paragraph
    assert "first_steps" not in found.paragraph


def test_episodes_that_the_policy_learnt_from_are_still_known(patients):
    log, _ = patients
    run = finish(begin(bc(), log, held_out=0.0, steps=7, eval_every=7))
    found = judge(run.policy(), log, first_steps=2, ledger=False)
    assert found.decision == "unsupported"
    assert re.search(r"learnt from (about )?100\.0% of the episodes", found.paragraph)


@pytest.mark.full
def test_each_number_of_steps_is_a_look_of_its_own(patients, tmp_path):
    log, _ = patients
    file = tmp_path / "looks.jsonl"
    options = {"limits": QUICK, "model": "tabular", "ledger": file}
    policy = Told(mostly(best_treatments(), 0.6))
    verdicts = [judge(policy, log, first_steps=steps, **options) for steps in (None, 2, 3, 2)]
    assert [one.context["looks"]["number"] for one in verdicts] == [1, 2, 3, 2]
    assert verdicts[1].difference == verdicts[3].difference
    alone = judge(policy, log, first_steps=2, **{**options, "ledger": False})
    assert verdicts[1].difference.low < alone.difference.low
    settings = [look.settings for look in Ledger.of(log, file).looks]
    assert "first_steps" not in settings[0]  # as in ledgers of before
    assert [one.get("first_steps") for one in settings] == [None, 2, 3]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(0, "at least 1"), (-3, "at least 1"), (True, "at least 1"), (2.0, "at least 1"), ("2", "at least 1"),
     (10**6, r"no effect, because the longest episode has \d+ steps. fix: remove first_steps")],
)  # fmt: skip
def test_numbers_of_steps_that_are_none_are_refused_before_a_look(steps, expected, patients, tmp_path):
    log, _ = patients
    with pytest.raises(tl.ConfigError, match=expected):
        judge(Copies(0.5), log, first_steps=steps, ledger=tmp_path / "looks.jsonl")
    assert not (tmp_path / "looks.jsonl").exists()
