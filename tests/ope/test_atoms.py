"""Values that continuous actions repeat: found, modelled beside the density of the others, declared, or refused."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import tidelog as tl
from benchmarks.adversarial_worlds import gaussian_policy
from tidelog.ope.evidence import Target, atoms_of, episode_folds, repeated_values
from tidelog.ope.policies import target_of
from tidelog.ope.propensities import propensities_of

pytestmark = pytest.mark.usefixtures("few_updates")

QUICK = tl.Limits(replicates=1000)
STILL = np.asarray([0.45, 0.5, 0.55, 0.5])  # by context: how often the action is exactly 0


def actions(size=2000, seed=0, spread=0.2):
    """Contexts [N], whether the action is exactly 0, and actions [N] that are else normal around .4."""
    generator = np.random.default_rng(seed)
    context = generator.integers(0, 4, size)
    still = generator.random(size) < STILL[context]
    moved = np.clip(0.4 + spread * generator.standard_normal(size), -0.99, 0.99)
    return context, still, np.where(still, 0.0, moved)


def log_of(context, action, reward=None, **more):
    reward = np.random.default_rng(1).normal(0.0, 0.3, len(context)) if reward is None else reward
    known = {"terminated": True, "bounds": (-1.0, 1.0), **more}
    return tl.Log.from_arrays(observation={"context": context}, action=action[:, None], reward=reward, **known)


def judged(policy, log, **more):
    known = {"sample": True, "limits": QUICK, "ledger": False, "learnt_from": "other data", "progress": False}
    return tl.judge(policy, log, **{**known, **more})


NORMAL = np.clip(0.25 * np.random.default_rng(0).standard_normal(2000), -0.99, 0.99)


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (NORMAL, []),
        (np.round(NORMAL, 2), []),  # rounding is no atom
        (np.round(NORMAL, 3), []),
        (np.where(np.arange(2000) < 1000, 0.0, NORMAL), [0.0]),
        (np.where(np.arange(2000) < 1000, 0.0, np.round(NORMAL, 2)), [0.0]),
        (np.where(np.arange(2000) < 15, 0.5, NORMAL), [0.5]),
        (np.where(np.arange(2000) < 4, 0.5, NORMAL), []),  # a few are chance
        (np.resize([0.0, 0.1, *NORMAL[:2]], 2000), [*NORMAL[:2], 0.0, 0.1]),
        (np.resize([-0.5, 0.0, 0.5], 2000), [-0.5, 0.0, 0.5]),
        (np.round(NORMAL * 4) / 4, [-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75]),  # a coarse grid
        (np.where(np.arange(2000) < 1000, 1.0, NORMAL), []),  # a bound: clipped actions are refused elsewhere
    ],
)
def test_a_value_is_an_atom_if_it_repeats_more_often_than_its_neighbours_or_on_a_coarse_grid(column, found):
    atoms = repeated_values(np.asarray(column, np.float32), -1.0, 1.0)
    assert atoms == pytest.approx(np.sort(np.asarray(found, np.float32)))


def test_patterns_say_in_which_dimensions_an_action_lies_on_which_atom():
    x, y = NORMAL[:400], NORMAL[400:800]
    both = np.stack([np.where(np.arange(400) % 4 == 0, 0.0, x), np.where(np.arange(400) % 4 < 2, 0.5, y)], 1)
    log = tl.Log.from_arrays(observation=np.zeros(400), action=both, reward=x, terminated=True, bounds=(-1.0, 1.0))
    atoms = atoms_of(log)
    assert [list(one) for one in atoms.values] == [[0.0], [0.5]]
    pattern = atoms.pattern_of(np.asarray(log.action))
    assert np.bincount(pattern).tolist() == [200, 100, 100]
    assert atoms.patterns == 3
    assert np.isnan(atoms.fixed[0]).all()
    for row in (0, 1, 2):
        on = ~np.isnan(atoms.fixed[pattern[row]])
        assert (atoms.fixed[pattern[row]][on] == both[row].astype(np.float32)[on]).all()
        assert on.tolist() == [row == 0, row < 2]
    assert atoms.pattern_of(np.asarray([[0.0, 0.1]], np.float32)).tolist() == [-1]  # never logged
    assert atoms.text == "one of 2 values (0, 0.5)"


def test_a_behavior_with_atoms_has_a_probability_there_and_a_density_elsewhere():
    context, still, action = actions()
    log = log_of(context, action)
    known = propensities_of(log, episode_folds(log, 2, 0))
    assert known.estimated
    assert known.logged[still] == pytest.approx(STILL[context[still]], abs=0.1)
    density = (1.0 - STILL[context]) * norm.pdf(action, 0.4, 0.2)
    near = ~still & (np.abs(action - 0.4) < 0.3)
    assert np.mean(np.abs(np.log(known.logged[near] / density[near]))) < 0.15
    clone = known.clones[0]
    drawn = clone.target(log, sample=True).actions
    assert (drawn == 0.0).mean() == pytest.approx(still.mean(), abs=0.03)
    assert drawn[drawn != 0.0].mean() == pytest.approx(0.4, abs=0.03)
    likeliest = clone.target(log, sample=False, bandwidth=0.2)
    assert ((likeliest.actions == 0.0).all(axis=(1, 2)) == (clone.pattern.probabilities.argmax(1) == 1)).all()


def test_a_sampled_policy_never_takes_an_atom_and_a_deterministic_one_may():
    context, still, action = actions(600)
    log = log_of(context, action)
    moving, resting = gaussian_policy(log, np.full(4, 0.1), 0.15), gaussian_policy(log, np.zeros(4), 0.15)
    assert (target_of(moving, log, sample=True).logged[still] == 0.0).all()
    assert (target_of(moving, log, sample=True).logged[~still] > 0.0).all()
    noisy = target_of(moving, log, bandwidth=0.2)
    assert (noisy.logged[still] == 0.0).all()
    assert (noisy.logged[~still] > 0.0).any()
    exact = target_of(resting, log, bandwidth=0.2)
    assert (exact.logged == still).all()  # probability 1 where it is what was done
    assert (exact.actions == 0.0).all()  # without noise


def test_the_policy_that_takes_the_atom_is_judged_by_its_probability():
    context, still, action = actions(1200)
    log = log_of(context, action, still + 0.3 * np.random.default_rng(2).standard_normal(1200))
    verdict = judged(gaussian_policy(log, np.zeros(4), 0.15), log, sample=False, bandwidth=0.2)
    assert verdict.decision == "better"
    assert verdict.difference.low < 1.0 - STILL.mean() < verdict.difference.high
    assert (
        "of the logged actions are exactly 0: the behaviour policy's probabilities of these were estimated"
        in verdict.paragraph
    )
    assert "never takes" not in verdict.paragraph


def test_recorded_propensities_of_repeated_values_are_refused_until_they_are_declared():
    context, still, action = actions(1200)
    recorded = np.where(still, STILL[context], (1.0 - STILL[context]) * norm.pdf(action, 0.4, 0.2))
    log = log_of(context, action, still + 0.0, propensity=recorded)
    policy = gaussian_policy(log, np.full(4, 0.4), 0.15)
    for propensities in (None, recorded):
        verdict = judged(policy, log, propensities=propensities)
        assert verdict.decision == "unsupported"
        assert "exactly 0: such a value has a probability and no density" in verdict.reasons[0]
        assert "atoms = [0]" in verdict.paragraph
    verdict = judged(policy, replace(log, atoms=(0.0,)))
    assert verdict.decision == "worse"
    assert verdict.context["propensities"] == "recorded"
    assert verdict.difference.low < -STILL.mean() < verdict.difference.high
    assert "were recorded, as declared; the policy never takes exactly these" in verdict.paragraph


def test_a_declared_atom_is_one_however_rare_it_is():
    context, still, action = actions(600)
    action = np.where(np.arange(600) < 3, 0.25, np.where(still, 0.4, action))
    assert atoms_of(log_of(context, action)).values[0].tolist() == [np.float32(0.4)]
    assert atoms_of(log_of(context, action, atoms=[0.25, 7.0])).values[0].tolist() == [0.25, np.float32(0.4)]


def test_a_grid_of_a_few_values_is_refused_with_what_to_do():
    context, _, action = actions(600)
    log = log_of(context, np.round(4.0 * action) / 4.0 * 0.9)
    verdict = judged(gaussian_policy(log, np.full(4, 0.1), 0.2), log)
    assert verdict.decision == "unsupported"
    assert "one of 5 values (" in verdict.reasons[0]
    assert "other actions are in 0 rows, at least 50 are needed" in verdict.reasons[0]
    assert "as discrete actions" in verdict.paragraph


def test_an_atom_is_shown_where_others_took_it_and_a_draw_off_the_atoms_where_enough_others_are_near():
    context, still, action = actions(2400)
    log = log_of(context, np.where((context == 3) & still, 0.4 + 0.1 * np.resize(NORMAL, 2400), action))
    clone = propensities_of(log, episode_folds(log, 2, 0)).clones[0]
    draws = np.repeat(np.asarray([[0.0], [0.4]], np.float32)[None], len(context), axis=0)  # [M, 2, 1]

    def shown(number):
        return clone.supports(Target(np.ones(2400), actions=draws[:, [number]]), log.spec.action)[:, 0]

    assert (shown(0) == (context != 3)).all()  # in context 3 nobody took exactly 0
    assert not shown(1).any(), "fewer than 1,000 steps off the atom were learnt from"
    enough = replace(clone, rows=1000)
    assert enough.supports(Target(np.ones(2400), actions=draws[:, [1]]), log.spec.action).all()
    unnamed = replace(enough, pattern=replace(clone.pattern, supported=np.zeros_like(clone.pattern.supported)))
    assert not unnamed.supports(Target(np.ones(2400), actions=draws[:, [1]]), log.spec.action).any()
