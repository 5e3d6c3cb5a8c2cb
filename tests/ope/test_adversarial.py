"""The adversary's worlds: their truth by simulation of another kind, their logs, and how verdicts are counted."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import adversarial
from benchmarks import adversarial_worlds as worlds
from benchmarks.adversarial_worlds import WORLDS, Cell, cells

ROWS = 400_000
BANDITS = {
    "quarter": worlds.quarter(),
    "frequent": worlds.quarter(frequent=True),
    "mirrored": worlds.quarter(mirrored=True),
    "partly fixed": worlds.partly_fixed(),
    "confounded": worlds.confounded(-0.1),
    "ties": worlds.ties(),
    "better": worlds.plain(0.5, 0.8),
    "strongly confounded": worlds.confounded(-0.1, worlds.STRONG, 0.95),
    "clicks": worlds.favourite(worlds.clicks(0.05), mean=0.05),
    "yes or no": worlds.yes_or_no(),
}


def apart(one, other):
    """The difference of two means, and its standard error: 4 of them fail a right truth for 6 in 100,000 seeds."""
    error = np.sqrt(one.var() / len(one) + other.var() / len(other))
    return one.mean() - other.mean(), error


@pytest.mark.parametrize("name", BANDITS)
def test_truth_is_what_the_policy_earns_when_it_acts(name):
    bandit = BANDITS[name]
    acted = np.broadcast_to(bandit.target, bandit.behavior_policy.shape)
    ours = bandit.rows(np.random.default_rng(1), ROWS, acted)["reward"]
    theirs = bandit.rows(np.random.default_rng(2), ROWS)["reward"]
    found, error = apart(ours, theirs)
    assert found == pytest.approx(bandit.truth, abs=4 * error)


def played(step, episodes=40_000, steps=60, seed=0):
    """Returns of episodes, a step at a time: `step(generator, t, state)` -> reward, state, still going."""
    generator = np.random.default_rng(seed)
    state, going, total = np.zeros(episodes), np.ones(episodes, bool), np.zeros(episodes)
    for t in range(steps):
        reward, state, stays = step(generator, t, state)
        total += np.where(going, reward, 0.0)
        going &= stays
    return total


def sending(often, pays):
    """A step of who sends so often; `pays(t, state)`; the state counts sends."""

    def step(generator, t, state):
        sent = generator.random(len(state)) < often
        return sent * pays(t, state), state + sent, np.ones(len(state), bool)

    return step


def after(sends, later):
    """What a send pays: 1 up to so many of them, and then this."""
    return lambda t, count: np.where(count < sends, 1.0, later)


def after_a_send(often):
    """A step of who sends so often, where a send after another one costs 3."""

    def step(generator, t, before):
        sent = generator.random(len(before)) < often
        return sent * np.where(before > 0, -3.0, 1.0), sent.astype(float), np.ones(len(before), bool)

    return step


def by_hour(day, night):
    """A step of who sends so often, where a send of the night costs 2."""

    def step(generator, t, state):
        dark = t % 24 >= 12
        sent = generator.random(len(state)) < (night if dark else day)
        return sent * (-2.0 if dark else 1.0), state, np.ones(len(state), bool)

    return step


def cut_off(second):
    """A step of who takes the second action so often, after which more episodes end badly."""

    def step(generator, t, state):
        action = (generator.random(len(state)) < second).astype(int)
        bad = generator.random(len(state)) < np.array([0.02, 0.08])[action]
        return 0.3 * action - 10.0 * bad, state, ~bad

    return step


SEQUENCES = {  # world and variant: a step of the policy, one of the behaviour policy, and how many
    ("history", "count hidden"): (sending(0.45, after(12, -3.0)), sending(0.15, after(12, -3.0)), 60),
    ("history", "count hidden, milder"): (sending(0.45, after(12, -0.5)), sending(0.15, after(12, -0.5)), 60),
    ("history", "ten steps"): (sending(0.25, after(2, -3.0)), sending(0.15, after(2, -3.0)), 10),
    ("history", "last action only"): (after_a_send(0.45), after_a_send(0.15), 60),
    ("history", "by hour, hidden"): (by_hour(0.3, 0.3), by_hour(0.25, 0.05), 60),
    ("informative truncation", "recorded"): (cut_off(0.65), cut_off(0.5), 10),
    ("habituation", "recorded"): (sending(0.6, after(3, -1.0)), sending(0.15, after(3, -1.0)), 20),
}


@pytest.mark.parametrize(("world", "variant"), SEQUENCES)
def test_truth_of_sequences(world, variant):
    policy, behavior_policy, steps = SEQUENCES[world, variant]
    sizes = WORLDS[world].variants[variant].sizes or WORLDS[world].sizes
    truth = Cell(world, variant, sizes[0]).draw(0).truth * (steps if world == "habituation" else 1)  # a step's mean
    episodes = (ROWS, 100_000) if world == "informative truncation" else (40_000, 40_000)
    ours, theirs = played(policy, episodes[0], steps), played(behavior_policy, episodes[1], steps, seed=1)
    found, error = apart(ours, theirs)
    assert found == pytest.approx(truth, abs=4 * error)


def test_truth_of_interference():
    assert Cell("interference", "recorded", 300).draw(0).truth == pytest.approx(0.9 * -0.8 - 0.2 * 0.6)


def test_truth_of_an_unsupported_step():
    generator, n = np.random.default_rng(0), ROWS
    odd = generator.random(n) < 0.25
    ordinary = 5 - odd

    def earned(chance):
        good = generator.binomial(ordinary, chance)
        return good + (ordinary - good) / 3

    found, error = apart(earned(0.65) - 20.0 * odd, earned(0.5))
    assert found == pytest.approx(Cell("unsupported quarter", "five steps", 110).draw(0).truth, abs=4 * error)


def test_truth_of_continuous_actions():
    """Actions of the policy itself, as tidelog draws them."""
    drawn = Cell("clipped actions", "density as drawn", 300).draw(0)
    seen = {"context": np.zeros((50_000, 1), np.int32)}
    ours = drawn.policies[0].sample(seen, 3)[:, 0] >= 1.0
    theirs = np.random.default_rng(1).normal(0.5, 0.4, 50_000) >= 1.0
    found, error = apart(ours.astype(float), theirs.astype(float))
    assert found == pytest.approx(drawn.truth, abs=4 * error)
    drawn = Cell("unsupported quarter", "continuous, out of range", 150).draw(0)
    seen = {"context": np.arange(40_000, dtype=np.int32)[:, None] % 4}
    action, last = drawn.policies[0].sample(seen, 3)[:, 0], seen["context"][:, 0] == 3
    reward = np.where(last, -20.0 * (action > 0.6), 2.0 * action)
    # 15 standard errors
    assert reward.mean() == pytest.approx(drawn.truth, abs=0.01 + 4 * reward[~last].std() / 200)


SMALL = [cell for cell in cells() if cell.episodes < 700]
LATER = [pytest.param(cell, marks=pytest.mark.full) for i, cell in enumerate(SMALL) if i % 8]


@pytest.mark.parametrize("cell", [*SMALL[::8], *LATER], ids=lambda cell: cell.name)
def test_a_seed_draws_one_log_of_the_promised_size(cell):
    one, again, other = cell.draw(3), cell.draw(3), cell.draw(4)
    young = cell.variant.startswith("horizon") and cell.variant != "horizon ignored"  # those are left out
    assert len(one.log.episode_ids) == cell.episodes or (young and 0 < len(one.log.episode_ids) < cell.episodes)
    assert one.log.fingerprint() == again.log.fingerprint() != other.log.fingerprint()
    assert one.truth == again.truth == other.truth
    if "estimated" in cell.variant:
        assert one.log.propensity is None


# Counting.


def row(seed, decision, truth=-1.0, words=()):
    return {
        "seed": seed, "truth": truth, "decision": decision, "difference": [0.1, 0.0, 0.2], "reason": "it is 3.2%",
        "words": list(words), "seconds": 0.1,
    }  # fmt: skip


WORLD = "unsupported quarter"


def test_a_wrong_verdict_breaks_the_promise():
    cell = Cell(WORLD, "recorded", 110)
    found = adversarial.summary(cell, [row(i, "better") for i in range(20)])
    assert (found["wrong_better"]["count"], found["wrong_worse"]["count"]) == (20, 0)
    assert found["first_reason"] == {"text": "it is #%", "logs": 20}
    assert found["promise"] == "broken"
    assert adversarial.summary(cell, [row(i, "worse") for i in range(20)])["promise"] == "kept"
    nothing = adversarial.summary(cell, [row(i, "worse", truth=0.0) for i in range(20)])
    assert nothing["wrong_worse"]["share"] == 1.0
    few = adversarial.summary(cell, [row(i, "better" if i < 2 else "unsupported") for i in range(40)])
    assert few["promise"] == "kept"  # 2 of 40 can be 2.5% by chance,
    more = adversarial.summary(cell, [row(i, "better" if i < 12 else "unsupported") for i in range(200)])
    assert more["promise"] == "broken"  # and 12 of 200 cannot


def test_words_keep_the_promise_where_every_wrong_verdict_has_them():
    cell = Cell("history", "count hidden", 100)
    said = [row(i, "better", words=["history"]) for i in range(20)]
    assert adversarial.summary(cell, said)["promise"] == "kept by its words"
    assert adversarial.summary(cell, [*said[1:], row(0, "better")])["promise"] == "broken"


def test_a_judge_that_answers_nothing_breaks_the_promise_of_ordinary_logs():
    cell = Cell("ordinary", "better", 300)
    assert adversarial.summary(cell, [row(i, "unsupported") for i in range(20)])["promise"] == "not answered"
    assert adversarial.summary(cell, [row(i, "better", truth=0.1) for i in range(20)])["promise"] == "kept"


def test_of_many_policies_the_most_favourable_verdict_is_kept(monkeypatch):
    drawn = Cell("looks", "untold", 300).draw(0)
    good = worlds.Table(np.tile([0.0, 0.0, 1.0], (6, 1)))
    reward = np.asarray(drawn.log.action) == 2
    log = replace(drawn.log, reward=(reward + 0.1 * np.asarray(drawn.log.reward)).astype(np.float32))
    policies = (drawn.policies[0], good, drawn.policies[1])
    monkeypatch.setattr(Cell, "draw", lambda self, seed: drawn._replace(log=log, policies=policies))
    assert adversarial.judged(Cell("looks", "untold", 300), 0)["decision"] == "better"
