"""An algorithm of one's own: what `tl.algorithm` refuses and fills in, the example, and the command line."""

from types import SimpleNamespace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tidelog as tl
from examples.crr import CRR
from tests.algorithms.worlds import world
from tidelog.algorithms import short_form
from tidelog.algorithms.hyperparameters import hyperparameters
from tidelog.algorithms.names import algorithm_class, load_plugin
from tidelog.algorithms.sampling import Batch
from tidelog.cli import main

TINY = {"hidden": (16, 16), "batch_size": 32}
OWN = {name: short_form.ALGORITHMS.pop(name) for name in ("crr",)}  # other files know the built-in ones alone


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The example, registered while this file runs."""
    short_form.ALGORITHMS.update(OWN)
    yield
    for name in OWN:
        short_form.ALGORITHMS.pop(name, None)


@pytest.fixture
def table():
    """The table of names, which is restored afterwards."""
    before = dict(short_form.ALGORITHMS)
    yield short_form.ALGORITHMS
    short_form.ALGORITHMS.clear()
    short_form.ALGORITHMS.update(before)


class Weights(NamedTuple):
    actor: jax.Array
    target_actor: jax.Array


def mean_action(**methods):
    """A class that learns the mean of the logged actions, with other methods in place of its own."""

    class MeanAction:
        """The mean of the logged actions."""

        rate: float = 0.5
        learning_rate: float = 0.1

        takes = (tl.types.Continuous,)

        def init(self, spec, key):
            return Weights(jnp.zeros(spec.action.size), jnp.zeros(spec.action.size))

        def loss(self, state, batch, key):
            error = jnp.mean(jnp.square(state.actor - batch.data.action), axis=-1)
            return {"actor": self.rate * batch.mean(error)}, {"size": jnp.sum(jnp.abs(state.actor))}

        def act(self, params, observation):
            return jnp.broadcast_to(params.actor, (len(next(iter(observation.values()))), len(params.actor)))

    for name, method in methods.items():
        if method is None:
            delattr(MeanAction, name)
        else:
            setattr(MeanAction, name, method)
    return MeanAction


def test_the_short_form_learns_and_is_what_optax_does_by_hand(table):
    cls = tl.algorithm("mean-action")(mean_action())
    log = world("continuous")
    algorithm, spec = cls(), log.spec
    state = algorithm.init(spec, jax.random.key(0))
    assert state._fields == ("actor", "target_actor", "opt_states", "step", "updates", "key")
    action = np.random.default_rng(0).uniform(-1, 1, (8, 2)).astype(np.float32)
    batch = Batch(tl.types.Decision({}, action, None), np.arange(8))
    (phase,) = algorithm.phases()
    adam = optax.adam(0.1)

    @jax.jit
    def by_hand(own, opt_state, target):
        gradient = jax.grad(lambda w: 0.5 * jnp.mean(jnp.mean(jnp.square(w - action), axis=-1)))(own)
        change, opt_state = adam.update(gradient, opt_state)
        own = own + change
        return own, opt_state, 0.995 * target + 0.005 * own

    own, opt_state, target = jnp.zeros(2), adam.init(jnp.zeros(2)), jnp.zeros(2)
    for _ in range(3):
        state, feedback = eqx.filter_jit(phase.step)(algorithm, state, batch)
        own, opt_state, target = by_hand(own, opt_state, target)
    np.testing.assert_allclose(state.actor, own, rtol=1e-5)
    np.testing.assert_allclose(state.target_actor, target, rtol=1e-5)
    assert set(feedback.metrics) == {"actor_loss", "size"}
    assert set(eqx.filter_eval_shape(phase.losses, algorithm, state, batch, state.key)) == {"actor_loss"}
    run = tl.fit(cls(learning_rate=0.01), log, 600, progress=False)
    scaled = np.asarray(log.action).mean(axis=0)
    np.testing.assert_allclose(run.policy()({n: a[:1] for n, a in log.observation.items()})[0], scaled, atol=0.1)


@pytest.mark.full
def test_the_example_conforms():
    passed = tl.testing.check_algorithm(CRR(**TINY), without_effect=("max_weight",))  # no weight reaches the cap here
    assert len(passed) >= 12
    assert any("without JAX" in one for one in passed)


@pytest.mark.full
def test_a_built_in_algorithm_conforms_with_a_memory_too():
    passed = tl.testing.check_algorithm(tl.BC(hidden=(16,), batch_size=16, recurrent_size=4, window=3))
    assert {"continuous", "discrete"} <= {one.rsplit("(", 1)[1].split()[0] for one in passed}


@pytest.mark.full
def test_a_policy_whose_most_likely_actions_no_episode_holds_still_conforms():
    log = tl.testing._random_log("discrete")
    run = tl.fit(tl.BC(hidden=(16,)), log, 12, progress=False)
    assert np.isnan(tl.estimate(run.policy(), log, ["wis"])["wis"].estimate)
    assert tl.testing._estimates(run, log) is None


def no_gradient(self, state, batch, key):
    return {"actor": 0.0 * jnp.sum(state.actor)}, {}


def one_per_row(self, state, batch, key):
    return {"actor": jnp.mean(jnp.square(state.actor - batch.data.action), axis=-1)}, {}


def of_another_network(self, state, batch, key):
    return {"critic": jnp.sum(state.actor)}, {}


def one_number(self, params, observation):
    return jnp.zeros(len(next(iter(observation.values()))))


@pytest.mark.sample("a loss a row", "a loss of no network")
@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"loss": no_gradient}, "unchanged after 12 updates: actor, target_actor"),
        ({"loss": no_gradient}, "rate has an effect .*neither training nor sampled actions"),
        ({"loss": one_per_row}, r"'actor' has shape \(.*\), expected one number. fix: use batch.mean"),
        ({"loss": of_another_network}, "returns 'critic', but the state has no network of this name"),
        ({"act": one_number}, r"`act` returns shape \(200,\), expected \(200, 2\)"),
    ],
    ids=["no gradient", "no effect", "a loss a row", "a loss of no network", "one number a row"],
)
def test_the_checks_name_what_is_wrong(table, methods, told):
    cls = tl.algorithm("wrong-one")(mean_action(**methods))
    with pytest.raises(tl.testing.ConformanceError, match=told):
        tl.testing.check_algorithm(cls)


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"init": None}, "MeanAction has no init. fix"),
        ({"loss": None}, r"MeanAction has no loss \(or phases\)"),
        ({"takes": ()}, r"takes = \(\): expected the supported kinds of action space"),
    ],
)
def test_a_missing_method_is_named(table, methods, told):
    with pytest.raises(tl.ConfigError, match=told):
        tl.algorithm("mean-action")(mean_action(**methods))
    assert "mean-action" not in table


def test_names_and_classes_are_refused(table):
    with pytest.raises(tl.ConfigError, match=r"the name <class .* is invalid"):
        tl.algorithm(mean_action())
    with pytest.raises(tl.ConfigError, match="the name 'Mean Action' is invalid"):
        tl.algorithm("Mean Action")
    with pytest.raises(tl.ConfigError, match=r"'iql' already belongs to tidelog.algorithms.iql.IQL"):
        tl.algorithm("iql")(mean_action())
    with pytest.raises(tl.ConfigError, match=r"'ppo' already belongs to tidelog.algorithms.ppg.PPG"):
        tl.algorithm("ppo")(mean_action())
    with pytest.raises(tl.ConfigError, match=r"object has no init and no loss \(or phases\)"):
        tl.algorithm("mean-action")(object)
    with pytest.raises(tl.ConfigError, match=r"no algorithm 'mean-actoin'.*--plugin MODULE"):
        algorithm_class("mean-actoin")


def test_a_state_of_other_things_is_refused(table):
    def plain(self, spec, key):
        return {"actor": jnp.zeros(2)}

    def lost(self, spec, key):
        return NamedTuple("Lost", [("actor", jax.Array), ("target_critic", jax.Array)])(jnp.zeros(2), jnp.zeros(2))

    log = world("continuous")
    for init, told in ((plain, "init returned dict .*expected a NamedTuple"), (lost, "target_critic follows 'critic'")):
        cls = tl.algorithm("mean-action")(mean_action(init=init))
        with pytest.raises(tl.ConfigError, match=told):
            cls().init(log.spec, jax.random.key(0))
        table.pop("mean-action")


def first_action(self, params, observation):
    return jnp.zeros(len(next(iter(observation.values()))), int)


@pytest.mark.parametrize(
    ("kind", "methods", "told"),
    [
        ("continuous", {"act": None}, r"no act \(or distribution\), and its state has no network 'actor'"),
        ("discrete", {"act": first_action, "takes": (tl.types.Discrete,)}, "give MeanAction.act an argument `mask`"),
        ("continuous", {"delayed": ("actr",), "policy_delay": 2}, "has no loss 'actr': did you mean 'actor'"),
        ("continuous", {"delayed": ("target_actor",), "policy_delay": 2}, "delayed has no loss 'target_actor'"),
        ("continuous", {"delayed": (("actor",),), "policy_delay": 2}, r"MeanAction.delayed has no loss"),
        ("continuous", {"delayed": ("actor",)}, "delayed without policy_delay. fix: policy_delay: int = 2"),
        ("continuous", {"target_rate": 1.0}, "MeanAction.target_rate has no effect. fix: rename it to tau"),
        ("continuous", {"products": "bfloat16"}, "products has no effect. fix: rename it to matmul_precision"),
    ],
)
def test_what_cannot_learn_or_would_have_no_effect_is_refused(table, kind, methods, told):
    with pytest.raises((tl.ConfigError, tl.SpecError), match=told):
        tl.fit(tl.algorithm("mean-action")(mean_action(**methods))(), world(kind), 1, progress=False)


def test_what_is_delayed_moves_in_every_so_manyth_update(table):
    def init(self, spec, key):
        return NamedTuple("Both", [("actor", jax.Array), ("target_actor", jax.Array)])(jnp.zeros(2), jnp.zeros(2))

    def loss(self, state, batch, key):
        return {"actor": jnp.sum(jnp.square(state.actor - 1.0))}, {}

    log, moved = world("continuous"), {}
    for delayed in ((), ("actor", "targets"), ("targets",)):
        cls = tl.algorithm("mean-action")(mean_action(init=init, loss=loss, delayed=delayed, policy_delay=3))
        states = [tl.fit(cls(), log, steps, progress=False).learners()[0].state for steps in (2, 3)]
        moved[delayed] = [[bool(jnp.any(part != 0)) for part in state[:2]] for state in states]
        table.pop("mean-action")
    assert moved[()] == [[True, True], [True, True]]
    assert moved["actor", "targets"] == [[False, False], [True, True]]
    assert moved["targets",] == [[True, False], [True, True]]


def test_a_policy_without_a_distribution_has_no_probabilities(table):
    def first(self, params, observation, mask=None):
        return jnp.zeros(len(next(iter(observation.values()))), int)

    def init(self, spec, key):
        return Weights(jnp.zeros(2), jnp.zeros(2))

    def loss(self, state, batch, key):
        return {"actor": jnp.sum(jnp.square(state.actor - 1.0))}, {}

    cls = tl.algorithm("mean-action")(mean_action(act=first, init=init, loss=loss, takes=(tl.types.Discrete,)))
    log = world("discrete")
    policy = tl.fit(cls(), log, 1, train=False).policy()
    with pytest.raises(tl.SpecError, match=r"MeanAction has no probabilities of actions. fix: give it a method"):
        policy.probabilities({name: leaf[:1] for name, leaf in log.observation.items()})


@pytest.mark.full
def test_an_algorithm_in_the_short_form_is_fine_tuned(table):
    cls = tl.algorithm("mean-action")(mean_action())
    log = tl.collect("Pendulum-v1", episodes=2, seed=0)
    run = tl.finetune(tl.fit(cls(), log, 4, progress=False), "Pendulum-v1", 20, progress=False)
    assert run.finished


def test_an_algorithm_of_other_actions_needs_a_log(table):
    cls = tl.algorithm("mean-action")(mean_action(takes=(tl.types.MultiDiscrete,)))
    with pytest.raises(tl.ConfigError, match=r"no random log has actions that MeanAction takes. fix: pass log="):
        tl.testing.check_algorithm(cls)


def test_fields_of_other_types_are_refused():
    class Odd:
        table: dict = {}  # noqa: RUF012

    class Bare:
        rate: float

    with pytest.raises(tl.ConfigError, match=r"Odd.table has the type dict, which has no text form"):
        hyperparameters(Odd)
    with pytest.raises(tl.ConfigError, match=r"Bare.rate has no default. fix: write rate: float = \.\.\."):
        hyperparameters(Bare)


PLUGIN = """
import jax.numpy as jnp
import tidelog as tl
from typing import NamedTuple

class State(NamedTuple):
    actor: object

@tl.algorithm("constant-action")
class Constant:
    learning_rate: float = tl.field(0.1, least=0.0, help="of Adam")
    takes = (tl.types.Continuous,)
    def init(self, spec, key):
        return State(jnp.zeros(spec.action.size))
    def loss(self, state, batch, key):
        return {"actor": batch.mean(jnp.mean((state.actor - batch.data.action) ** 2, axis=-1))}, {}
    def act(self, params, observation):
        return jnp.broadcast_to(params.actor, (len(next(iter(observation.values()))), len(params.actor)))
"""


def test_a_plugin_is_a_subcommand_that_resumes(tmp_path, monkeypatch, capsys, table):
    (tmp_path / "my_plugin.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    world("continuous").save("log")
    train = ["train", "constant-action", "--data", "log", "--steps", "20", "--out", "run"]
    assert main(train) == 2
    assert "no algorithm 'constant-action'" in capsys.readouterr().err
    assert main([*train, "--plugin", "my_plugin", "--learning-rate", "0.2"]) == 0
    assert tl.load_run("run").record.algorithms()[0].learning_rate == pytest.approx(0.2)
    assert main(["--plugin=my_plugin", "resume", "run"]) == 0
    assert main(["--plugin", "no_such_module", "resume", "run"]) == 2
    assert "--plugin: importing no_such_module failed: ModuleNotFoundError" in capsys.readouterr().err


def test_a_plugin_that_fails_is_named(tmp_path, monkeypatch, table):
    (tmp_path / "unfit_plugin.py").write_text("import tidelog as tl\n@tl.algorithm('unfit')\nclass Unfit: ...\n")
    (tmp_path / "failed_plugin.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(tl.ConfigError, match="--plugin: importing failed_plugin failed: ZeroDivisionError"):
        load_plugin("failed_plugin")
    with pytest.raises(tl.ConfigError, match=r"^algorithm: Unfit"):  # its own message
        load_plugin("unfit_plugin")


def test_a_loss_of_two_networks_may_have_metrics_of_its_own_also_on_held_out_data():
    both = ("actor", "critic")
    losses = {both: jnp.float32(1.0)}, {both: {"actor_loss": 2.0, "entropy": 3.0}, "critic_loss": 4.0}
    config = SimpleNamespace(loss=lambda state, batch, key: losses)
    state = SimpleNamespace(opt_states=dict.fromkeys(both), key=None)
    found = short_form.held_out_losses(config, state, None, None)
    assert found == {"actor_critic_loss": 1.0, "actor_loss": 2.0, "critic_loss": 4.0}
