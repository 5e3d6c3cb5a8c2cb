"""A Q without updates is never used: its weight is 0 in every policy, by whatever way a run comes to it."""

import jax.numpy as jnp
import numpy as np
import pytest

import tidelog as tl
import tidelog.runtime
from tests.algorithms.recommenders import described, fresh, small
from tidelog import ConfigError
from tidelog.data.statistics import Scaler
from tidelog.policies.policy import Policy
from tidelog.recommend.held_out import WEIGHTS, QWeightSelection, _best_weight
from tidelog.training.run import policy_of_run
from tidelog.types import HistoryArrays, HistoryNames

NOTE = "Q has had no update: its weight is 0, and lists are in order of likelihood"
UNUSED = (
    "Q adds nothing here; likelihood alone orders the lists: no gain over likelihood was shown on a held-out period, "
    "so its weight is 0"
)
NOT_COMPARED = (
    "Q is not used: no period was held out, so lists with Q were not compared with likelihood, and its weight is 0; "
    "hold out a period (--held-out 0.1) or set q_weight (--q-weight)"
)
EARLY = (
    "the report with the best held_out/ndcg@10 is from before the first update of Q: its weight is 0, and lists are in "
    "order of likelihood; no later report was better"
)
HISTORIES = [["i1", "i2"], ["i7"], []]


def untrained(updates=0, **changes):
    """A policy of initial networks, whose Q counts as trained or not."""
    h, log = small(**changes), described()
    state = fresh(h, log)._replace(q_updates=jnp.int32(updates))
    return Policy(h, log.spec, Scaler(), h.policy_params(state))


def tried(policy, monkeypatch):
    """The weights that a selection measures, and the weight that it returns."""
    selection, asked = QWeightSelection(described().split(share=0.4).test), []
    measure = QWeightSelection._metrics
    monkeypatch.setattr(QWeightSelection, "_metrics", lambda self, *of: asked.append(of[-1]) or measure(self, *of))
    return asked, selection.measure(policy)[0]


@pytest.mark.parametrize(
    ("updates", "q_weight", "weights"),
    [(0, None, [0.0]), (0, 1.5, [0.0]), (1, None, [*WEIGHTS]), (1, 1.5, [1.5])],
    ids=["without an update", "nor one that was set", "after an update", "a set one alone"],
)
def test_the_weights_that_are_tried(updates, q_weight, weights, monkeypatch):
    asked, chosen = tried(untrained(updates=updates, q_weight=q_weight), monkeypatch)
    assert asked == weights
    assert len(weights) > 1 or chosen == weights[0]


def test_a_note_says_what_was_compared():
    """A report from before Q's first update can be the best one; without a held-out period nothing is compared."""
    best = {"best_report": True, "chosen_by": "held_out/ndcg@10", "held_out_share": 0.4}
    none, shown = {"best_report": False, "held_out_share": 0.0}, {"best_report": False, "held_out_share": 0.4}
    early, late = untrained(), untrained(updates=1)

    def said(policy, origin):
        return policy.algorithm.policy_notes(policy.params._replace(weight=jnp.float32(0.0)), origin)

    assert [said(early, best), said(early, none)] == [[EARLY], [NOTE]]
    assert [said(late, none), said(late, shown), said(late, {})] == [[NOT_COMPARED], [UNUSED], [UNUSED]]
    assert said(late, none | {"refit": "trained again"}) == [UNUSED]  # with the weight that a held-out period chose


@pytest.mark.parametrize("changes", [{"q_weight": 5.0}, {}, {"generator": "vae", "q_weight": 5.0}])
def test_lists_are_those_of_the_encoder_alone(changes):
    """With a generator too: its proposals, without an update, come before no likelier item."""
    policy = untrained(**changes)
    items = np.asarray([[0, 2, 3], [0, 0, 8]], np.int32)
    seen = HistoryArrays(items, np.minimum(items, 1), names=HistoryNames(described().items, described().events))
    lists = [policy.ranker(supervised=alone).rank(seen, 5)[0] for alone in (False, True)]
    np.testing.assert_array_equal(*lists)
    trained = untrained(updates=1, **{"q_weight": 5.0, **changes})
    assert (trained.ranker().rank(seen, 5)[0] != lists[1]).any()  # what would be served
    assert policy.notes() == [NOTE]
    assert trained.notes() == []


def test_a_saved_policy_keeps_it_without_jax_too(tmp_path):
    policy = untrained(generator="vae", q_weight=5.0)
    policy.save(tmp_path / "policy")
    again, plain = tl.load_policy(tmp_path / "policy"), tidelog.runtime.load(tmp_path / "policy")
    assert again.notes() == plain.manifest["origin"]["notes"] == [NOTE]
    assert plain.manifest["recipe"]["act"]["q_weight"] == 0.0
    lists = policy.recommend(HISTORIES, 4)
    for other in (again, plain):
        np.testing.assert_array_equal(other.recommend(HISTORIES, 4).items, lists.items)
        np.testing.assert_allclose(other.recommend(HISTORIES, 4).scores, lists.scores, atol=1e-5)


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """A run of six updates: three of pretraining, each reported, then three of everything."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    log = described()
    log.save(folder.parent / "log")
    interactions = tl.Interactions.load(folder.parent / "log")
    run = tl.fit(small(pretrain_share=0.5), interactions, 6, out=folder, held_out=0.4, eval_every=1, save_seconds=0.0,
                 keep_checkpoints=10, best_metric="max:held_out/ndcg@10")  # fmt: skip
    return folder, run


@pytest.mark.full
def test_reports_tell_the_updates_and_the_weight_of_q(halves):
    metrics = halves[1].metrics
    assert [row["q_updates"] for row in metrics] == [0, 0, 0, 1, 2, 3]
    assert [row["q_weight"] for row in metrics[:3]] == [row["held_out/q_weight"] for row in metrics[:3]] == [0.0] * 3
    assert metrics[-1]["q_weight"] == float(halves[1].policy().params.weight) == metrics[-1]["held_out/q_weight"]
    assert halves[1].notes() == ([] if metrics[-1]["q_weight"] else [UNUSED])


@pytest.mark.full
def test_a_run_cut_in_pretraining_has_weight_0_and_a_resumed_one_goes_on(halves):
    folder, _ = halves
    cut = tl.load_run(folder, checkpoint=2)
    assert (float(cut.policy().params.weight), cut.policy().notes()) == (0.0, [NOTE])
    after = tl.load_run(folder, checkpoint=4).policy()
    assert (int(after.params.q_updates), NOTE in after.notes()) == (1, False)


@pytest.mark.full
def test_without_a_held_out_period_only_a_set_weight_is_used():
    found = {}
    for q_weight in (None, 0.25):
        run = tl.fit(small(pretrain_share=0.67, q_weight=q_weight), described(), 3, eval_every=1)
        found[q_weight] = [(row["q_updates"], row["q_weight"]) for row in run.metrics], run.notes()
    assert found[None] == ([(0, 0.0), (0, 0.0), (1, 0.0)], [NOT_COMPARED])
    assert found[0.25] == ([(0, 0.0), (0, 0.0), (1, 0.25)], [])


def test_a_weight_is_used_only_where_its_gain_is_shown_for_all_weights_together():
    """Two hundred users with three cases each: noise that is shared by their cases, and one true gain."""
    rng, users = np.random.default_rng(0), np.repeat(np.arange(200), 3)
    plain = rng.exponential(1.0, 600)

    def noisy(gain):
        return plain + gain + np.repeat(rng.standard_normal(200), 3)

    assert _best_weight([plain], users) == 0
    assert _best_weight([plain, plain, noisy(0.0), plain + 0.0], users) == 0
    assert _best_weight([plain, noisy(1.0), noisy(2.0), noisy(0.0)], users) == 2
    assert _best_weight([plain, noisy(-2.0), noisy(-1.0)], users) == 0
    assert _best_weight([plain, plain + 1.0, plain + 1.0], users) == 1  # the smaller weight of two alike


@pytest.mark.full
def test_the_chance_of_using_a_weight_without_a_gain_is_its_level():
    """30 logs, five weights whose lists differ by chance; one log in 40 may have a gain that is not there.

    More than 4 of 30 has a probability of 0.001.
    """
    rng, users = np.random.default_rng(1), np.arange(300)
    used = sum(
        _best_weight([np.zeros(300), *rng.standard_normal((5, 300)) * (rng.random((5, 300)) < 0.3)], users) > 0
        for _ in range(30)
    )
    assert used <= 4


@pytest.mark.full
@pytest.mark.parametrize("held_out", [0.0, 0.4])
def test_a_run_without_an_update_of_q_says_so_and_does_not_use_it(held_out, tmp_path):
    described().save(tmp_path / "log")
    run = tl.fit(small(pretrain_share=1), tl.Interactions.load(tmp_path / "log"), 2, out=tmp_path / "run",
                 held_out=held_out, eval_every=2, train=False)  # fmt: skip
    assert "leaves no update for Q" in run.notes()[0]
    run.train()
    assert len(run.notes()) == 1
    assert (run.metrics[-1]["q_updates"], run.metrics[-1]["q_weight"]) == (0, 0.0)
    for policy in (run.policy(), policy_of_run(tmp_path / "run")):
        assert (float(policy.params.weight), policy.notes()) == (0.0, [NOTE])


@pytest.mark.full
def test_a_run_that_patience_ends_in_pretraining_says_so():
    run = tl.fit(small(pretrain_share=0.9, learning_rate=0.0), described(), 10, held_out=0.4, eval_every=1, patience=1,
                 best_metric="held_out/pretrain/imitation_loss")  # fmt: skip
    assert run.update < 9
    assert run.notes() == [EARLY.replace("ndcg@10", "pretrain/imitation_loss")]
    assert float(run.best_policy().params.weight) == 0.0


def test_no_update_of_q_and_a_weight_for_it_contradict_each_other():
    with pytest.raises(ConfigError, match=r"pretrain_share = 1 leaves no update for Q, but q_weight = 2 uses Q. fix:"):
        small(pretrain_share=1.0, q_weight=2.0)
    small(pretrain_share=1.0, q_weight=0.0)


def test_members_of_a_population_share_the_pretraining():
    with pytest.raises(ConfigError, match=r"RecommenderBCQ\.pretrain_share is 0\.5 in one and 0\.1 in another"):
        tl.fit([small(pretrain_share=0.5), small(pretrain_share=0.1)], described(), 2)
