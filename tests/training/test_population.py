"""Population-based training: who copies whom, what a copy takes over, exact resume, and what is refused."""

import math
import shutil

import jax
import numpy as np
import pytest

import tidelog as tl
from tests.training.runs import LOSS, all_of, bc, begin, chunks_of, finish, iql, reopened, stop_at
from tidelog.algorithms.core.hyperparameters import to_config
from tidelog.errors import ConfigError, DivergenceError
from tidelog.policies.named_arrays import fingerprint
from tidelog.training.engine import learner as learner_module
from tidelog.training.engine.members import as_members
from tidelog.training.fit import parts_of
from tidelog.training.runs.exploit import after_copies, copies_at, number_schedule
from tidelog.training.runs.options import Options
from tidelog.training.runs.policies import policy_of_run

RATES = (1e-2, 3e-3, 1e-3)


def pbt(**changes):
    return tl.PopulationBasedTraining(**{"every": 14, "metric": LOSS, "vary": ("learning_rate",), **changes})


def population(log, out=None, **options):
    """Six members: three learning rates, two seeds each."""
    return begin([bc(learning_rate=rate) for rate in RATES], log, out, **{"seeds": 2, "population": pbt(), **options})


def six(**changes):
    """Six members with the learning rates 1 to 6 hundredths, and the options of a run."""
    members = as_members([bc(learning_rate=i / 100) for i in range(1, 7)], [5])
    return Options(steps=100, seeds=(5,), every=10, population=pbt(every=10, **changes)), members


def told(options, members, values, update=10):
    copies = copies_at(options, update, members, values, ["learning_rate"])
    return {copy.member: copy.source for copy in copies}, copies


def test_the_worst_copy_the_best_and_ties_go_by_index():
    options, members = six(share=0.34)
    pairs, copies = told(options, members, [0.3, 0.1, 0.3, 0.3, 0.1, 0.3])
    assert set(pairs) == {3, 5}, "of equal members those with the higher index are worse"
    assert set(pairs.values()) <= {1, 4}
    assert [copy.value for copy in copies] == [0.3, 0.3]
    larger, _ = told(six(share=0.34, metric=f"max:{LOSS}")[0], members, [1, 2, 3, 4, 5, 6])
    assert set(larger) == {0, 1}
    assert set(larger.values()) <= {4, 5}
    assert set(told(six(share=0.01)[0], members, [1, 2, 3, 4, 5, 6])[0]) == {5}, "one at least"


def test_numbers_are_multiplied_by_a_factor_of_the_update_and_the_member():
    options, members = six(factors=(0.5, 0.75, 1.25, 2.0))
    drawn = {}
    for update in range(10, 90, 10):
        pairs, copies = told(options, members, [1, 2, 3, 4, 5, 6], update)
        assert copies == told(options, members, [1, 2, 3, 4, 5, 6], update)[1]
        assert pairs == {5: 0}
        drawn[update] = copies[0].numbers["learning_rate"] / 0.01
    assert len(set(drawn.values())) > 1
    assert set(np.round(list(drawn.values()), 9)) <= {0.5, 0.75, 1.25, 2.0}


def test_a_number_that_would_leave_its_range_stays():
    members = as_members([iql(expectile=0.9), iql(expectile=0.6)], [0])
    options = Options(
        steps=100, seeds=(0,), every=10, population=pbt(every=10, vary=("expectile",), factors=(1.25,), share=0.5)
    )
    for values, expectile in (([1.0, 2.0], 0.9), ([2.0, 1.0], 0.75)):
        (copy,) = copies_at(options, 10, members, values, ["expectile"])
        assert copy.numbers["expectile"] == pytest.approx(expectile)


def test_a_member_without_a_finite_value_is_always_replaced():
    options, members = six(share=0.2)
    pairs, copies = told(options, members, [math.nan, 1.0, math.inf, 2.0, math.nan, 3.0])
    assert set(pairs) == {0, 2, 4}
    assert set(pairs.values()) == {1}
    assert [copy.value for copy in copies] == [None] * 3
    assert told(options, members, [math.nan] * 6)[0] == {}


def test_a_copy_takes_over_everything_but_the_key_of_its_samples(log):
    run = population(log)
    stop_at(run, 14)
    (copy,) = run.copies
    one, other = run.learners()[copy.member], run.learners()[copy.source]
    assert fingerprint(one._replace(key=other.key)) == fingerprint(other)
    assert not np.array_equal(jax.random.key_data(one.key), jax.random.key_data(other.key))
    algorithm, source = run.members[copy.member].algorithm, run.members[copy.source].algorithm
    assert algorithm.learning_rate / source.learning_rate in (pytest.approx(0.8), pytest.approx(1.25))
    numbers = [float(one.learning_rate) for one in run._engine._algorithms]
    assert numbers == [float(np.float32(one.algorithm.learning_rate)) for one in run.members], "programs read them"
    assert run.members[copy.member].seed == copy.member % 2, "the seed is that of the place"
    finish(run)
    learners = run.learners()
    assert fingerprint(learners[copy.member].state) != fingerprint(learners[copy.source].state)


def test_nothing_is_compiled_again(log):
    compiled = []
    run = population(log, population=pbt(every=7), every=7)
    for now in run.stream():
        if now.doing == "training":
            compiled.append(learner_module._programs[0, False]._cached._cache_size())
    assert len(run.copies) == 5
    assert len(set(compiled)) == 1


@pytest.mark.parametrize("save_seconds", [1e9, pytest.param(0.0, marks=pytest.mark.full)])
def test_a_resumed_run_equals_an_uninterrupted_one(origin, tmp_path, save_seconds, monkeypatch):
    chunks_of(5, monkeypatch)
    whole = finish(population(origin, tmp_path / "whole", best=LOSS))
    part = population(origin, tmp_path / "part", best=LOSS, save_seconds=save_seconds)
    stop_at(part, 35)
    shutil.copytree(
        tmp_path / "part", tmp_path / "killed"
    )  # as a kill would leave it: with save_seconds=1e9 before any copy
    again = reopened(tmp_path / "killed")
    assert again.copies == whole.copies
    assert len(whole.copies) == 2
    assert all_of(again) == all_of(whole)
    loaded = tl.load(tmp_path / "killed")
    assert [to_config(one.algorithm) for one in loaded.members] == [to_config(one.algorithm) for one in whole.members]


def test_policies_tell_how_their_numbers_changed(origin, tmp_path):
    run = finish(population(origin, tmp_path / "run", best=LOSS))
    last = run.copies[-1]
    policy = policy_of_run(tmp_path / "run", last.member)
    assert policy.algorithm.learning_rate == last.numbers["learning_rate"]
    schedule = policy.origin["number_schedule"]
    assert schedule == run.policy(member=last.member).origin["number_schedule"]
    assert schedule[-1] == {"update": last.update, **last.numbers}
    assert schedule[0]["update"] == 0
    assert schedule[0]["learning_rate"] in RATES
    assert policy.origin["chosen_by"] == LOSS
    assert any("changed during training" in note for note in policy.notes())
    for best in (run.best_policy(member=last.member), policy_of_run(tmp_path / "run")):
        assert best.algorithm.learning_rate == best.origin["number_schedule"][-1]["learning_rate"]
    saved = tl.load_policy(policy.save(tmp_path / "policy"))
    assert saved.algorithm.learning_rate == last.numbers["learning_rate"]
    assert saved.origin["number_schedule"] == schedule


def test_the_schedule_of_a_member_follows_its_sources():
    options, members = six()
    copies = told(options, members, [1, 2, 3, 4, 5, 6], 10)[1]  # 5 copies 0
    copies += told(options, after_copies(members, copies), [6, 2, 3, 4, 5, 1], 20)[1]  # 0 copies 5
    configs = [to_config(member.algorithm) for member in members]
    numbers = [copy.numbers["learning_rate"] for copy in copies]
    schedule = number_schedule(configs, options, copies, 0)
    assert schedule == [
        {"update": 0, "learning_rate": 0.01},
        {"update": 10, "learning_rate": numbers[0]},
        {"update": 20, "learning_rate": numbers[1]},
    ]
    assert number_schedule(configs, options, copies, 3) == [{"update": 0, "learning_rate": 0.04}]


def test_episodes_that_choose_never_judge(log):
    run = population(log, held_out=0.5)
    parts = parts_of(log, run.record.options)
    chooses, judges = set(log.episode_ids[parts._validation].tolist()), set(run.record.held_out)
    assert (len(chooses), len(judges)) == (4, 11)
    assert not chooses & judges
    _, validation = run.learnt_from()
    (draw,) = (phase.samplers for phase in run.members[0].algorithm.phases())
    steps = np.diff(log.starts)[np.isin(log.episode_ids, sorted(chooses))].sum()
    assert draw.unit.rows(validation.stores[draw.store])[0] == steps
    with pytest.raises(ConfigError, match=r"selection_share = 1\.0: no held-out episode would be left"):
        population(log, selection_share=1.0)


@pytest.mark.full
def test_a_member_that_diverges_is_replaced_and_the_last_one_ends_the_run(log):
    rates = [bc(learning_rate=rate) for rate in (1e-2, 1e-3, 1e30)]
    run = finish(begin(rates, log, population=pbt()))
    assert run.finished
    assert run.copies[0].member == 2
    assert run.copies[0].value is None
    assert all(np.isfinite(row[LOSS]) for row in run.metrics if row["update"] > 14)
    with pytest.raises(DivergenceError, match="became NaN or infinite"):
        finish(begin([bc(learning_rate=1e30)], log, seeds=2, population=pbt()))
    with pytest.raises(DivergenceError, match="became NaN or infinite"):
        finish(begin(rates, log, population=pbt(vary=("learning_rate",), factors=(1e30,))))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"every": 0}, r"population.every = 0: expected a whole number of updates. fix: use"),
        ({"share": 0.6}, r"population.share = 0.6: expected a share of the members in \(0, 0.5\].* fix: use share=0.2"),
        ({"share": 0}, "population.share = 0: expected a share"),
        ({"factors": (0.8, 0.0)}, r"population.factors = \(0.8, 0.0\): expected numbers above 0. fix: use"),
        ({"factors": ()}, r"population.factors = \(\): expected numbers above 0"),
        ({"vary": ()}, r"population.vary = \(\): expected names of hyper-parameters. fix: use"),
        ({"vary": ("a", "a")}, "a name is there twice. fix: name each once"),
        ({"metric": 3}, "population.metric = 3: expected the name of a metric"),
    ],
)
def test_settings_that_are_wrong_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        pbt(**changes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"population": pbt(every=42)}, "population.every = 42: expected fewer than the 42 steps.* fix: use every=4"),
        ({"population": pbt(every=20)}, "every = 14: population.every = 20 is not the update of a report. fix: use a"),
        ({"population": pbt(metric="held_out/los")}, "population.metric = 'held_out/los': no metric on held-out data"),
        ({"population": pbt(metric="imitation_loss")}, "population.metric = 'imitation_loss': no metric on held-out"),
        ({"population": pbt(vary=("rate",))}, "population.vary: BC has no number 'rate'; known names: .*learning_rate"),
        ({"population": pbt(vary=("batch_size",))}, "BC.batch_size belongs to the compiled program.* fix: use some of"),
        ({"population": pbt(vary=("dropout",))}, "population.vary: BC.dropout is None, which no factor changes. fix:"),
        (
            {"population": {"every": 7}},
            r"population = \{'every': 7\}: expected settings of population-based training. fix",
        ),
        ({"held_out": 0.0}, "no metric on held-out data.* fix: use held_out=0.2"),
    ],
)
def test_a_run_that_no_population_fits_is_refused(log, options, message):
    with pytest.raises(ConfigError, match=message):
        population(log, **options)


def test_one_member_is_refused(log):
    with pytest.raises(ConfigError, match=r"population: the run has 1 member, expected at least 2. fix: use seeds=8"):
        begin(bc(), log, population=pbt())


def test_a_loss_that_contains_a_varied_number_is_refused(log):
    with pytest.raises(ConfigError, match=r"'held_out/value_loss': this loss contains expectile.* fix: leave"):
        begin(iql(), log, seeds=2, population=pbt(metric="held_out/value_loss", vary=("expectile",)))
    run = begin([iql(temperature=t) for t in (1.0, 3.0)], log, population=pbt(metric="held_out/critic_loss",
                vary=("critic_learning_rate",)))  # fmt: skip
    assert len(run.members) == 2
