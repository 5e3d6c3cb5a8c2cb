"""What a run writes, reports, selects and refuses."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms import recommenders
from tests.algorithms.worlds import world
from tests.training.runs import LOSS, bc, begin, chunks_of, finish, iql, untimed
from tidelog import ConfigError, Log, LogError, SpecError
from tidelog.algorithms import short_form
from tidelog.errors import DivergenceError
from tidelog.ope.verdict import held_out_part
from tidelog.policies.policy import fingerprint
from tidelog.sinks import read_rows
from tidelog.training.record import Record
from tidelog.training.run import overfitting, policy_of_run


@pytest.fixture(scope="module")
def run(origin, tmp_path_factory):
    return finish(begin(bc(), origin, tmp_path_factory.mktemp("fit") / "run", seeds=[3, 1]))


@pytest.fixture(scope="module")
def values(origin, tmp_path_factory):
    return finish(begin(iql(), origin, tmp_path_factory.mktemp("fit") / "iql"))


def test_the_run_folder_says_what_was_done_with_what(run, origin):
    content = json.loads((run.folder / "run.json").read_text())
    assert content["algorithm"] == "bc"
    (config,) = content["configs"]
    assert config["learning_rate"] == 1e-2
    assert config["hidden"] == [8, 8]
    assert content["options"]["seeds"] == [3, 1]
    assert content["options"]["held_out"] == 0.2
    assert {"tidelog", "jax", "jaxlib", "equinox", "optax", "numpy", "python", "device"} < set(content["machine"])
    assert content["machine"]["threads"] >= 1
    data = {"fingerprint": origin.fingerprint(), "steps": origin.steps, "episodes": 30, "origin": origin.origin}
    assert {name: value for name, value in content["data"].items() if value} == data
    assert Record.read(run.folder).spec == origin.spec


def test_held_out_episodes_are_exactly_those_that_are_not_trained_on(run, origin):
    held_out = set(run.record.held_out)
    train, kept = origin.split(1.0 - run.record.options.held_out, seed=run.record.options.split_seed)
    assert len(held_out) == 6
    assert held_out == set(kept.episode_ids.tolist())
    assert held_out | set(train.episode_ids.tolist()) == set(origin.episode_ids.tolist())
    assert not held_out & set(train.episode_ids.tolist())
    assert len(run._engine.stores["log"].position) == train.steps == origin.steps - kept.steps
    with_another_seed = begin(bc(), origin, split_seed=1).record.held_out
    assert set(with_another_seed) != held_out
    assert begin(bc(), origin, held_out=0.0).record.held_out == []


def test_metrics_are_the_same_in_memory_and_in_the_file(run):
    assert [(row["update"], row["member"], row["seed"]) for row in run.metrics] == [
        (update, member, seed) for update in (14, 28, 42) for member, seed in enumerate((3, 1))
    ]
    assert read_rows(run.folder / "metrics.jsonl") == run.metrics
    assert {"update", "member", "seed", "imitation_loss", "entropy", LOSS} == {*untimed(run.metrics)[0]}


def test_reports_do_not_depend_on_chunks(run, origin, monkeypatch):
    for size in (1, 9):
        chunks_of(size, monkeypatch)
        again = finish(begin(bc(), origin, seeds=[3, 1]))
        assert untimed(again.metrics) == untimed(run.metrics)
        assert [fingerprint(a) for a in again.learners()] == [fingerprint(a) for a in run.learners()]


@pytest.mark.full
def test_a_step_is_traced_once(origin, monkeypatch):
    traces, step = [], short_form.step
    monkeypatch.setattr(short_form, "step", lambda *inputs: traces.append(1) or step(*inputs))
    tl.fit(tl.BC(hidden=(7,), batch_size=9), origin, 20, progress=False)  # sizes that no other test has
    assert len(traces) == 1


def test_the_last_report_comes_at_the_last_update(origin):
    assert [row["update"] for row in finish(begin(bc(), origin, steps=30)).metrics] == [14, 28, 30]
    assert begin(bc(), origin, steps=10_000, eval_every=None).record.options.eval_every == 200
    assert begin(bc(), origin, steps=100, eval_every=None).record.options.eval_every == 50


def test_training_losses_are_means_since_the_last_report(origin):
    one = [row["imitation_loss"] for row in finish(begin(bc(), origin, eval_every=1)).metrics]
    together = [row["imitation_loss"] for row in finish(begin(bc(), origin)).metrics]
    np.testing.assert_allclose(together, np.reshape(one, (3, 14)).mean(1), rtol=1e-5)


def test_validation_losses_are_means_over_the_held_out_rows(run, values, origin):
    _, kept = origin.split(1.0 - run.record.options.held_out, seed=run.record.options.split_seed)
    seen = kept.transitions.observation
    for member, row in zip(run.members, run.metrics[-2:], strict=True):
        likely = run.policy(member.seed).log_probability(seen, kept.action)
        assert row[LOSS] == pytest.approx(-likely.mean(), rel=1e-5)

    state, rows = values.learners()[0].state, kept.transitions
    now, after = (values.record.scaler.observation(o) for o in (rows.observation, rows.next_observation))
    rated = eqx.filter_jit(lambda network, *inputs: network(*inputs))
    target = values.record.scaler.reward(rows.reward) + 0.99 * (1 - rows.terminated) * np.asarray(
        rated(state.value, after)
    )
    by_hand = np.square(np.asarray(rated(state.critic, now, rows.action)) - target).sum(0).mean()
    assert values.metrics[-1]["held_out/critic_loss"] == pytest.approx(by_hand, rel=1e-4)
    gap = np.asarray(rated(state.target_critic, now, rows.action)).min(0) - np.asarray(rated(state.value, now))
    by_hand = (np.where(gap > 0, 0.7, 0.3) * gap**2).mean()
    assert values.metrics[-1]["held_out/value_loss"] == pytest.approx(by_hand, rel=1e-4)


def test_numeric_features_of_tables_are_standardised_by_the_training_episodes(run, origin):
    train, _ = origin.split(1.0 - run.record.options.held_out, seed=run.record.options.split_seed)
    scaler = run.record.scaler
    np.testing.assert_allclose(scaler.mean["numeric"], train.observation["numeric"].mean(0), rtol=1e-5)
    np.testing.assert_allclose(scaler.std["numeric"], train.observation["numeric"].std(0), rtol=1e-5)
    assert not np.allclose(scaler.mean["numeric"], origin.observation["numeric"].mean(0), rtol=1e-5)
    np.testing.assert_allclose(run._engine.stores["log"].observation["numeric"].mean(0), 0.0, atol=1e-5)
    assert not begin(bc(), origin, scale="none").record.scaler.mean
    assert begin(bc(), nameless(), held_out=0.0).record.scaler.mean, "arrays too"


def nameless(**changes):
    """Six one-step decisions on arrays."""
    seen = np.arange(12, dtype=np.float32).reshape(6, 2)
    return Log.from_arrays(
        **{"observation": seen, "action": np.arange(6) % 3, "reward": np.ones(6), "terminated": True, **changes}
    )


SCRIPT = [float("nan"), 3.0, 1.0, 2.0, 2.5, 9.0]


@pytest.mark.parametrize(("best", "patience", "at", "end"), [
    ("told", 3, 28, 70), ("told", None, 84, 84), ("min:told", 2, 42, 70), ("max:told", 4, 84, 84),
])  # fmt: skip
def test_the_best_report_keeps_its_policy_and_patience_ends_the_run(best, patience, at, end, origin, tmp_path):
    seen = {}

    def told(policy):
        update = policy.origin["update"]
        seen[update] = fingerprint(policy.params)
        return SCRIPT[update // 14 - 1]

    options = {"steps": 84, "best_metric": best, "patience": patience, "evaluate": {"told": told}}
    run = finish(begin(bc(), origin, tmp_path / "run", **options))
    assert run.finished
    assert run.update == end
    assert len(set(seen.values())) == len(seen)
    kept = [run.best_policy(), run.best_policy(seed=0), tl.load_policy(tmp_path / "run" / "best" / "member-0")]
    assert [fingerprint(policy.params) for policy in kept] == [seen[at]] * 3


def test_the_best_of_all_members_is_a_members_best(origin, tmp_path):
    worth = {1e-2: 1.0, 1e-3: 2.0}
    evaluate = {"worth": lambda policy: worth[round(policy.algorithm.learning_rate, 4)]}
    population, options = [bc(), bc(learning_rate=1e-3)], {"best_metric": "worth", "evaluate": evaluate}
    run = finish(begin(population, origin, tmp_path / "run", seeds=2, **options))
    for best in (run.best_policy(), policy_of_run(tmp_path / "run")):
        assert best.algorithm.learning_rate == 1e-3
        assert fingerprint(best.params) == fingerprint(run.best_policy().params)
    assert run.best_policy(member=1).algorithm.learning_rate == 1e-2


def test_a_member_has_one_number_in_metrics_and_policies(origin, tmp_path):
    """A population of two algorithms with two seeds has the members 0 to 3 everywhere."""
    run = finish(begin([bc(), bc(learning_rate=1e-3)], origin, tmp_path / "run", seeds=[4, 7]))
    rows = {row["member"]: row["seed"] for row in run.metrics}
    assert rows == {0: 4, 1: 7, 2: 4, 3: 7}
    for member, seed in rows.items():
        policy = run.policy(member=member)
        assert (policy.origin["seed"], policy.algorithm.learning_rate) == (seed, [1e-2, 1e-2, 1e-3, 1e-3][member])
        assert fingerprint(policy.params) == fingerprint(policy_of_run(tmp_path / "run", member).params)
    with pytest.raises(ConfigError, match=r"member = 4: this run has 4 member\(s\)\. fix: use 0 to 3"):
        run.policy(member=4)
    with pytest.raises(ConfigError, match=r"has 4 member\(s\)\. fix: use 0 to 3"):
        policy_of_run(tmp_path / "run", 4)
    with pytest.raises(ConfigError, match=r"seed = 9: no member has this seed\. fix: use one of \[4, 7\]"):
        run.policy(seed=9)
    with pytest.raises(ConfigError, match=r"seed = 7: the members 1, 3 of this population have it\. fix: name one of"):
        run.policy(seed=7)
    with pytest.raises(ConfigError, match=r"seed = 7, member = 1: each names a member\. fix: set only one of them"):
        run.policy(seed=7, member=1)


def test_what_held_out_data_choose_is_in_the_policy_and_in_the_report(origin):
    class Silence:
        notes = ("nothing is left of the actor",)

        def measure(self, policy):
            return 0.0, {"held_out/silence": 1.0}

        def apply(self, algorithm, state, choice):
            weights, rest = eqx.partition(state.actor, eqx.is_inexact_array)
            return state._replace(actor=eqx.combine(jax.tree.map(lambda leaf: choice * leaf, weights), rest))

    run = begin(bc(), origin, steps=2, eval_every=1)
    run.chooser = Silence()
    assert finish(run).metrics[-1]["held_out/silence"] == 1.0
    assert not any(map(np.any, jax.tree.leaves(eqx.filter(run.policy().params, eqx.is_inexact_array))))


def test_losses_are_better_when_smaller(origin):
    run = finish(begin(bc(), origin, best_metric="imitation_loss"))
    losses = [row["imitation_loss"] for row in run.metrics]
    assert run._selection.best == {0: min(losses)}
    with pytest.raises(
        ConfigError, match=r"this run has no best policy\. fix: name a metric for it, as in fit\(\.\.\., best_metric="
    ):
        finish(begin(bc(), origin)).best_policy()


WRONG = {
    "steps": ({"steps": 0}, "steps = 0: expected 1 to"),
    "half a step": ({"steps": 1.5}, "steps = 1.5: expected a whole number"),
    "no seeds": ({"seeds": 0}, "seeds = 0: expected 1 to 10,000"),
    "empty seeds": ({"seeds": []}, r"seeds = \[\]: expected at least one seed, each once"),
    "a seed twice": ({"seeds": [1, 2, 1]}, r"seeds = \[1, 2, 1\]: expected at least one seed, each once"),
    "seeds": ({"seeds": None}, "seeds = None: expected a whole number"),
    "eval_every": ({"eval_every": 0}, "eval_every = 0: expected at least 1"),
    "held_out": ({"held_out": 1.0}, r"held_out = 1.0: expected a share of the episodes in \[0, 1\)"),
    "held_out text": ({"held_out": "0.2"}, "held_out = '0.2': expected a number"),
    "keep_checkpoints": ({"keep_checkpoints": 0}, "keep_checkpoints = 0: expected at least 1 checkpoint"),
    "scale": ({"scale": "minmax"}, "scale = 'minmax': expected 'standard' or 'none'"),
    "episodes": ({"evaluate": {"Pendulum-v1": 0}}, r"evaluate\['Pendulum-v1'\] = 0: expected at least 1 episode"),
    "evaluator": ({"evaluate": {"x": "10"}}, r"evaluate\['x'\] = '10': expected a whole number"),
    "environment": ({"evaluate": {"tretment": 1}}, "no environment 'tretment': did you mean 'treatment'"),
    "best_metric": ({"best_metric": "held_out/imitation_los"}, f"this run has no such metric; did you mean '{LOSS}'"),
    "best without validation": ({"best_metric": LOSS, "held_out": 0.0}, "did you mean 'imitation_loss'"),
    "best is no key": ({"best_metric": "update"}, "best_metric = 'update': this run has no such metric"),
    "patience alone": ({"patience": 2}, "patience = 2: patience needs best_metric= and must be at least 1"),
    "no patience": (
        {"patience": 0, "best_metric": LOSS},
        "patience = 0: patience needs best_metric= and must be at least 1",
    ),
    "no algorithm": ({"algorithm": []}, "algorithm: found an empty list: expected at least one algorithm"),
    "a class": ({"algorithm": tl.BC}, r"BC is a class: expected an instance\. fix: pass BC\(\)"),
    "a name": ({"algorithm": "bc"}, "algorithm = 'bc': expected an algorithm or a list of them"),
    "two kinds": ({"algorithm": [tl.BC(), tl.IQL()]}, "a population needs one algorithm, but it has BC and IQL"),
    "a path": ({"log": "visits.csv"}, r"log: expected a tl.Log, found str. fix: read it first, as in tl.read_log"),
    "warm part": (
        {"warm_start": {"critic": "runs/x"}},
        "the state has no part 'critic'. fix: use one of actor, opt_state",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(wrong, origin, tmp_path):
    changes, message = WRONG[wrong]
    with pytest.raises(ConfigError, match=message):
        tl.fit(**{"algorithm": bc(), "log": origin, "steps": 4, "out": tmp_path / "run", "held_out": 0.2, **changes})
    assert not (tmp_path / "run").exists()


def test_best_may_name_any_metric_that_will_be_reported(origin):
    evaluate = {"own": lambda policy: 1.0, "treatment": 1}
    for best in ("imitation_loss", "max:entropy", LOSS, "play/treatment/iqm", "min:own"):
        begin(bc(), origin, best_metric=best, evaluate=evaluate)


def test_a_folder_that_is_taken_is_left_alone(run, origin, tmp_path):
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    with pytest.raises(
        ConfigError,
        match=r"exists and is not empty \(a run\); nothing was written\. fix: .* continue the run with `tidelog resum",
    ):
        begin(bc(), origin, run.folder)
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"\(no run\); nothing was written\. fix: choose another folder$"):
        begin(bc(), origin, tmp_path)


def test_environments_that_show_something_else_are_refused(origin, tmp_path):
    with pytest.raises(SpecError, match=r"Pendulum-v1 has the observations \['observation'\], the policy expects"):
        begin(bc(), origin, tmp_path / "run", evaluate={"Pendulum-v1": 1})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["iql", "bc"])
def test_divergence_stops_the_run_and_keeps_the_last_good_checkpoint(kind, origin, tmp_path):
    if kind == "iql":
        algorithm, log, update = (
            iql(reward_scaling="none"),
            replace(origin, reward=origin.reward + np.float32(1e30), origin=None),
            0,
        )
    else:
        algorithm, log, update = bc(learning_rate=1e30), origin, 1
    with pytest.raises(DivergenceError) as raised:
        finish(begin(algorithm, log, tmp_path / "run", seeds=[8]))
    said = str(raised.value)
    assert (
        f"a loss of {kind.upper()} with seed 8 became NaN or infinite at update {update}: expected finite numbers. fix:"
        in said
    )
    assert f"The last good checkpoint, at update 0, is in {tmp_path / 'run'}" in said
    assert tl.load_run(tmp_path / "run", log).update == 0
    with pytest.raises(DivergenceError, match="The run has no folder, therefore there is no checkpoint"):
        finish(begin(algorithm, log))


def test_a_member_that_diverges_stops_the_population(origin, tmp_path):
    rates = [bc(learning_rate=1e-3), bc(learning_rate=1e30)]
    with pytest.raises(DivergenceError, match="a loss of BC with seed 5 became NaN or infinite at update 1: expected"):
        finish(begin(rates, origin, tmp_path / "run", seeds=[5], held_out=0.3, best_metric=LOSS))
    assert tl.load_run(tmp_path / "run").update == 0


def test_parts_start_warm_from_another_run(values, origin, tmp_path):
    made = begin(iql(), origin, seeds=[5, 6], warm_start={"critic": values.folder, "value": values.folder})
    source, fresh = values.learners()[0].state, begin(iql(), origin, seeds=[5]).learners()[0].state
    for learner in made.learners():
        assert fingerprint(learner.state.critic) == fingerprint(source.critic)
        assert fingerprint(learner.state.value) == fingerprint(source.value)
    assert fingerprint(made.learners()[0].state.actor) == fingerprint(fresh.actor)
    assert fingerprint(source.critic) != fingerprint(fresh.critic)
    assert finish(made).finished
    whole = ("actor", "critic", "target_critic", "value", "opt_states")
    again = begin(iql(temperature=9.0), origin, seeds=[7], warm_start=dict.fromkeys(whole, values.folder))
    for part in whole:
        assert fingerprint(getattr(again.learners()[0].state, part)) == fingerprint(getattr(source, part))


TINY = {"hidden": (8,), "batch_size": 8}
SMALL = {**TINY, "generator_hidden": (8,), "perturbation_hidden": (8,), "target_samples": 2, "samples": 2}
WARM = {
    "iql": (tl.IQL(**TINY), {"critic": ["target_critic"]}),
    "bcq": (tl.BCQ(**SMALL), {"critic": ["target_critic"], "perturbation": ["target_perturbation"]}),
    "discrete-bcq": (tl.DiscreteBCQ(**TINY), {"critic": ["target_critic"]}),
    "discrete-bcq without a target": (tl.DiscreteBCQ(**TINY, tau=None), {"critic": []}),
    "recommender-bcq": (
        recommenders.small(generator="vae"),
        {"next_item": ["target_encoder"], "critic": ["target_critic"], "generation": ["target_perturbation"]},
    ),
}


def log_for(algorithm):
    if type(algorithm) is tl.RecommenderBCQ:
        return recommenders.described()
    return world("continuous" if type(algorithm) is tl.BCQ else "discrete")


@pytest.mark.sample("discrete-bcq")
@pytest.mark.parametrize("name", WARM)
def test_a_target_network_starts_warm_with_what_it_follows(name, tmp_path):
    algorithm, pairs = WARM[name]
    log = log_for(algorithm)
    source = tl.fit(algorithm, log, 3, out=tmp_path / "source").learners()[0].state
    fresh = tl.fit(algorithm, log, 3, seeds=[1], train=False).learners()[0].state
    follows = {"target_encoder": lambda state: state.next_item.encoder,
               "target_critic": lambda state: state.critic,
               "target_perturbation": lambda state: getattr(state, "generation", state).perturbation}  # fmt: skip
    for part, targets in pairs.items():
        warm = (
            tl.fit(algorithm, log, 3, seeds=[1], warm_start={part: tmp_path / "source"}, train=False)
            .learners()[0]
            .state
        )
        for target in (field for field in fresh._fields if field.startswith("target_")):
            if target not in targets:  # untouched
                assert fingerprint(getattr(warm, target)) == fingerprint(getattr(fresh, target))
                continue
            assert fingerprint(getattr(warm, target)) == fingerprint(follows[target](source))
            both = {part: tmp_path / "source", target: tmp_path / "source"}
            named = tl.fit(algorithm, log, 3, seeds=[1], warm_start=both, train=False).learners()[0].state
            assert fingerprint(getattr(named, target)) == fingerprint(getattr(source, target))
            assert fingerprint(getattr(source, target)) != fingerprint(follows[target](source))


@pytest.mark.full
def test_a_warm_start_that_does_not_fit_is_refused(values, run, origin, tmp_path):
    for part, source, algorithm, message in (
        ("critic", run.folder, iql(), "has no part 'critic'. fix: use one of actor, key, opt_states, step, updates"),
        ("critic", values.folder, iql(hidden=(4, 4)), r"expected float32\["),
        ("critic", values.folder, iql(num_critics=3), "has 14 arrays: expected the 21 of this algorithm"),
        ("critic", tmp_path, iql(), "has no complete checkpoint"),
    ):
        with pytest.raises(tl.errors.CheckpointError, match=message):
            begin(algorithm, origin, tmp_path / "run", warm_start={part: source})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"reward": None}, "no reward column, and the algorithm learns from rewards"),
        ({"terminated": None, "truncated": np.ones(6, bool)}, "no step of this log can be learned from: every episode"),
    ],
)
def test_a_log_without_rewards_or_next_observations_is_for_cloning(columns, message, tmp_path):
    log = nameless(**columns)
    with pytest.raises(LogError, match=message):
        begin(iql(), log, tmp_path / "run", held_out=0.0)
    assert not (tmp_path / "run").exists()
    assert finish(begin(bc(), log, held_out=0.0, steps=2)).finished


def test_held_out_episodes_that_say_nothing_are_refused_before_anything_is_written(tmp_path):
    episode, ends = [0, 0, 0, 0, 1, 2], [False, False, False, True, True, True]
    log = nameless(episode=episode, terminated=np.logical_and(ends, [1, 1, 1, 1, 0, 0]), truncated=[*[False] * 4, 1, 1])
    for seed in range(9):
        if 0 not in begin(bc(), log, split_seed=seed).record.held_out:
            with pytest.raises(LogError, match="no step of this log"):
                begin(iql(), log, tmp_path / "run", split_seed=seed)
            break
    assert not (tmp_path / "run").exists()


def test_weights_reach_the_loss():
    def loss(weight):
        return finish(begin(bc(), nameless(weight=weight), held_out=0.0, steps=1)).metrics[0]["imitation_loss"]

    plain = loss(np.ones(6))
    assert loss(np.full(6, 2.0)) == pytest.approx(plain), "a factor on all weights changes nothing"
    assert loss(np.array([1.0, 1, 1, 1, 1, 50])) != pytest.approx(plain)
    with pytest.raises(LogError, match="all weights of the steps that are read are 0"):
        loss(np.zeros(6))


@pytest.mark.sample("False")
@pytest.mark.parametrize("mapped", [False, True])
def test_no_cluster_is_trained_on_and_held_out(origin, mapped, tmp_path):
    clusters = np.arange(30) % 7
    log = replace(origin, cluster=clusters.astype(np.int32)[origin.episode])
    if mapped:
        log.save(tmp_path / "log")
        log = tl.Log.load(tmp_path / "log", memory_map=True)
    held_out = begin(bc(), log, tmp_path / "run").record.held_out
    kept = np.isin(origin.episode_ids, held_out)
    assert 4 <= len(held_out) <= 8
    assert not set(clusters[kept]) & set(clusters[~kept])
    judged, _ = held_out_part(tmp_path / "run", Record.read(tmp_path / "run"), log)
    np.testing.assert_array_equal(judged.cluster, judged.clusters[judged.episode])
    assert len(judged.episodes) == len(held_out)
    one = replace(log, cluster=np.zeros(log.steps, np.int32))
    with pytest.raises(LogError, match=r"1 cluster.*fix: "):
        begin(bc(), one)


def test_a_policy_that_fits_the_training_episodes_alone_is_said(origin):
    """Held-out decisions become less likely after the best report: the note names it."""
    rows = [
        {"update": update, "member": member, "seed": member, "held_out/imitation_loss": loss}
        for member, losses in enumerate([(3.9, 3.85, 3.9), (3.9, 4.2, 5.69)])
        for update, loss in zip((100, 200, 300), losses, strict=True)
    ]
    (note,) = overfitting(rows)
    assert note.startswith("held_out/imitation_loss rose from 3.9 at update 100 to 5.69: ")
    assert "train for 100 steps, or keep the best policy with --best-metric held_out/imitation_loss" in note
    assert "of few held-out episodes all choose it, so judge it on other episodes" in note
    weighted = [{name.replace("imitation", "actor"): value for name, value in row.items()} for row in rows]
    assert overfitting(weighted)[0].startswith("held_out/actor_loss rose from 3.9 at update 100 to 5.69: ")
    falling = [row | {"actor_loss": 1.0 / row["update"]} for row in weighted]
    assert len(overfitting(falling)) == 1
    rising = [row | {"actor_loss": row["update"] / 100.0} for row in weighted]
    assert overfitting(rising) == []  # the loss rises in training, too: no sign of overfitting
    early = [(100, 1.11, 2.02), (200, 1.13, 1.20), (300, 1.29, 1.23)]  # the first mean is over untrained networks
    assert overfitting([{"update": at, "member": 0, "held_out/actor_loss": loss, "actor_loss": mean}
                        for at, loss, mean in early]) == []  # fmt: skip
    assert overfitting([row | {"decisions": row["update"]} for row in rows]) == []  # it leaves the log
    assert overfitting(rows[:3]) == []
    assert overfitting([{"update": 1, "member": 0, "seed": 0, "loss": 1.0}]) == []
