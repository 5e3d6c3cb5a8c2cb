"""A refit learns from all episodes what the chosen policy learnt from a part of them."""

import re

import pytest

import tidelog as tl
from tests.algorithms.players import tiny
from tests.algorithms.recommenders import described, small
from tests.training.runs import LOSS, STEPS, all_of, bc, begin, finish, reopened, stop_at
from tidelog.policies.policy import fingerprint, remember
from tidelog.training.run import policy_of_run

SUMMARY = {
    "decision": "better",
    "acting": "sample",
    "date": "2026-11-24",
    "caveat": "",
    "advice": "Use it: it is better.",
    "difference": 0.5,
    "low": 0.25,
    "high": 0.75,
    "level": 0.95,
    "episodes": 40,
}


def at(update, log, algorithm, seed, **options):
    """The policy of a run on all episodes that is stopped at that update."""
    run = begin(algorithm, log, seeds=[seed], held_out=0.0, **options)
    for _ in run.stream(update):
        pass
    return run.policy()


@pytest.fixture(scope="module")
def chosen(origin, tmp_path_factory):
    """A finished run of two seeds that kept its best policy, which samples and has a verdict."""
    run = finish(
        begin(bc(), origin, tmp_path_factory.mktemp("chosen") / "run", seeds=2, best_metric=LOSS, eval_every=7)
    )
    policy = run.best_policy()
    policy.declare("sample", SUMMARY)
    remember(run.folder, policy)
    return run.folder


@pytest.mark.parametrize("path", [True, False], ids=["folder", "run"])
def test_it_is_the_run_on_all_episodes_until_the_chosen_update(path, chosen, origin):
    run = tl.load_run(chosen)
    best = run.best_policy()
    again = tl.refit(chosen if path else run, progress=False)
    assert again.finished
    assert again.update == best.origin["update"]
    assert again.record.held_out == []
    assert again.record.sketches["learnt_from"]["episodes"] == len(origin.episodes)
    expected = at(best.origin["update"], origin, bc(), best.origin["seed"])
    assert fingerprint(again.policy().params) == fingerprint(expected.params)


def test_it_stops_before_the_end_of_its_schedules_and_resumes_to_there(origin, tmp_path):
    run = stop_at(begin(bc(schedule="cosine"), origin, tmp_path / "run", data_share=0.5), 14)
    run._save()
    again = tl.refit(run, tmp_path / "refit", train=False)
    assert again.record.options.steps == STEPS
    assert not again.finished
    stop_at(again, 1)
    whole = reopened(tmp_path / "refit")
    assert whole.update == run.update < STEPS
    expected = at(run.update, origin, bc(schedule="cosine"), 0)
    assert fingerprint(whole.policy().params) == fingerprint(expected.params)
    assert f"of {run.update} updates" in repr(whole)
    assert all_of(reopened(tmp_path / "refit")) == all_of(whole)


def test_a_member_brings_its_settings_and_its_seed(origin, tmp_path):
    population = finish(begin([bc(), bc(learning_rate=1e-3)], origin, tmp_path / "run", seeds=[4, 9]))
    for one, rate, seed in ((0, 1e-2, 4), (3, 1e-3, 9)):
        expected = fingerprint(at(STEPS, origin, bc(learning_rate=rate), seed).params)
        for source in (population, population.folder):
            again = tl.refit(source, member=one, progress=False)
            assert fingerprint(again.policy().params) == expected
    assert again.record.options.seeds == (9,)
    with pytest.raises(tl.ConfigError, match=r"member = 4.*4 member\(s\)"):
        tl.refit(population, member=4)


def test_it_acts_as_the_policy_that_was_judged_and_says_that_it_was_not(chosen, origin, tmp_path):
    again = tl.refit(chosen, tmp_path / "refit", progress=False)
    for policy in (again.policy(), policy_of_run(tmp_path / "refit"), tl.load_run(tmp_path / "refit").policy()):
        assert policy.acting == "sample"
        assert policy.verdict is None
        (note,) = policy.notes()
        assert "learnt from the whole log" in note
        assert str(chosen) in note
        assert "Use it: it is better. Verdict of 2026-11-24: BETTER, +0.5" in note
        assert "No verdict is on the refit itself" in note
    assert again.notes() == [note]
    again.policy().save(tmp_path / "policy")
    saved = tl.load_policy(tmp_path / "policy")
    assert (saved.acting, saved.notes()) == ("sample", [note])
    saved.declare("sample", SUMMARY)  # a verdict of its own, on newer data
    assert saved.notes() == []
    verdict = tl.judge(again.policy(), origin, progress=False)
    assert verdict.decision == "unsupported"
    assert "learnt from 100.0% of the episodes that it is judged on" in verdict.paragraph


def test_newer_rows_of_the_same_columns_are_welcome(chosen):
    newer = tl.collect("treatment", episodes=12, seed=5)
    again = tl.refit(chosen, log=newer, progress=False)
    assert again.record.data.fingerprint == newer.fingerprint()
    assert again.record.data.steps == newer.steps


@pytest.mark.slow
@pytest.mark.full
def test_lists_keep_the_weight_of_q_that_the_held_out_period_chose():
    log = described()
    run = finish(tl.fit(small(), log, 6, eval_every=3, held_out=0.3, train=False))
    engine, member = run._engine, run.members[0]
    engine.replace_state(0, member.algorithm.with_q_weight(engine.state(0), 0.5))
    again = tl.refit(run, log=log, progress=False)
    assert again.chooser is None
    assert run.metrics[-1]["q_weight"] != 0.5  # as a fresh run would not have it
    assert again.metrics[-1]["q_weight"] == 0.5
    assert again.policy().algorithm.policy_metrics(again.policy().params)["q_weight"] == 0.5
    assert any("no held-out events are left" in note for note in again.notes())
    assert not any("judge" in note for note in again.notes())


def test_what_cannot_be_refitted_is_refused_and_writes_nothing(log, origin, chosen, tmp_path):
    memory = finish(begin(bc(), log, tmp_path / "memory"))
    with pytest.raises(tl.errors.CheckpointError, match=r"created in memory.*refit\(run, out, log=log\)"):
        tl.refit(memory, tmp_path / "refit")
    assert tl.refit(memory, log=log, progress=False).finished
    with pytest.raises(tl.ConfigError, match="no update yet"):
        tl.refit(begin(bc(), origin), tmp_path / "refit")
    with pytest.raises(tl.ConfigError, match="is the run that is repeated"):
        tl.refit(chosen, chosen, overwrite=True)
    with pytest.raises(tl.SpecError, match=r"its observations are .*'numeric'.* fix: read it with the mapping"):
        tl.refit(chosen, tmp_path / "refit", log=tl.collect("jax:CartPole-v1", episodes=3, seed=0))
    with pytest.raises(tl.ConfigError, match=r"log: expected a tl\.Log, found str"):
        tl.refit(chosen, tmp_path / "refit", log="visits.csv")
    with pytest.raises(tl.ConfigError, match=re.escape("run = None")):
        tl.refit(None)
    assert not (tmp_path / "refit").exists()


def test_a_run_in_an_environment_has_no_whole_log(tmp_path):
    run = tl.learn(tiny(), "jax:CartPole-v1", 64, out=tmp_path / "online", train=False)
    with pytest.raises(tl.ConfigError, match=r"it learns in the environment .* expected a run that learned from a log"):
        tl.refit(run, tmp_path / "refit")
