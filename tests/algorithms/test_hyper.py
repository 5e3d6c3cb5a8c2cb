"""Hyper-parameters as pytrees, and as plain values in files."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog import BC, BCQ, IQL, ConfigError
from tidelog.algorithms.hyperparameters import (
    field,
    from_config,
    hyperparameters,
    same_program,
    to_config,
)
from tidelog.algorithms.iql import PRESETS
from tidelog.algorithms.names import ALGORITHMS, algorithm_class, algorithm_name, check_fit
from tidelog.errors import SpecError
from tidelog.training.loop import as_arrays
from tidelog.types import Continuous, Discrete, MultiDiscrete, Spec, Vector

OF_THE_SCHEDULE = ("pretrain_share",)  # numbers that all members of a population share


@pytest.mark.parametrize("name", ALGORITHMS)
def test_leaves_are_exactly_the_numbers_that_are_set(name):
    algorithm = ALGORITHMS[name]()
    numbers = [f.name for f in dataclasses.fields(algorithm) if isinstance(getattr(algorithm, f.name), float)]
    numbers = [one for one in numbers if one not in OF_THE_SCHEDULE]
    paths, _ = jax.tree_util.tree_flatten_with_path(algorithm)
    assert [path[0].name for path, _ in paths] == numbers
    assert [leaf for _, leaf in paths] == [getattr(algorithm, n) for n in numbers]


def test_a_number_of_the_schedule_is_no_leaf_and_has_a_range():
    @hyperparameters
    class Config:
        share: float = field(0.5, least=0.0, most=1.0, leaf=False)
        rate: float = 0.1

    assert jax.tree.leaves(Config(share=0.25)) == [0.1]
    assert jax.tree.map(lambda leaf: leaf, Config(share=0.25)).share == 0.25
    assert from_config(Config, to_config(Config(share=1))) == Config(share=1.0)
    same_program([Config(rate=0.3), Config(rate=0.1)])
    with pytest.raises(ConfigError, match=r"Config\.share is 0\.5 in one and 0\.25 in another"):
        same_program([Config(), Config(share=0.25)])
    for wrong in (1.5, -0.1, float("nan"), None, True):
        with pytest.raises(ConfigError, match=r"Config\.share = "):
            Config(share=wrong)


def test_saved_settings_with_an_unknown_name_are_refused():
    with pytest.raises(
        ConfigError,
        match=r"have IQL\.depth = 0\.7, but IQL has no .* 'depth' in this version. fix: use the",
    ):
        from_config(IQL, {**to_config(IQL()), "depth": 0.7})


def test_names_of_earlier_versions_are_read_in_files_and_named_in_calls():
    """Settings that were saved before five hyper-parameters were renamed are read; the constructor says the name."""
    before = {"tau": "target_rate", "num_critics": "critics", "matmul_precision": "products"}
    saved = {before.get(name, name): value for name, value in to_config(IQL(tau=0.25, num_critics=3)).items()}
    assert from_config(IQL, saved) == IQL(tau=0.25, num_critics=3)
    with pytest.raises(ConfigError, match=r"^IQL has no hyper-parameter 'target_rate'\. fix: write tau$"):
        IQL(target_rate=0.1)


def test_none_is_structure():
    without, with_value = IQL(), IQL(dropout=0.1)
    assert jax.tree.structure(without) != jax.tree.structure(with_value)
    assert jax.tree.structure(IQL(dropout=0.1)) == jax.tree.structure(IQL(dropout=0.2, expectile=0.9))
    assert jax.tree.structure(IQL(num_critics=3)) != jax.tree.structure(without)


def test_tracers_go_through_and_numbers_share_a_program():
    traced = []

    @jax.jit
    def scaled(h):
        traced.append(h)
        return h.expectile * 10 if h.dropout is None else h.dropout

    np.testing.assert_allclose([scaled(IQL()), scaled(IQL(expectile=0.9)), scaled(IQL(dropout=0.5))], [7.0, 9.0, 0.5])
    assert len(traced) == 2
    rates = jax.vmap(lambda h: h.temperature)(jax.tree.map(lambda x: jnp.array([x, 2 * x]), IQL(temperature=1.5)))
    np.testing.assert_allclose(rates, [1.5, 3.0])
    assert as_arrays(IQL()).hidden == (256, 256)


def test_whole_numbers_become_floats_and_lists_become_tuples():
    algorithm = IQL(temperature=3, hidden=[8, 8])
    assert isinstance(algorithm.temperature, float)
    assert algorithm.hidden == (8, 8)
    with pytest.raises(ConfigError, match="list of positive whole numbers"):
        IQL(hidden=(8, 0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        algorithm.temperature = 1.0


def test_a_population_is_one_algorithm():
    same_program([IQL(), IQL(temperature=1.0, discount=0.9)])
    with pytest.raises(ConfigError, match="it has IQL and BC"):
        same_program([IQL(), BC()])
    with pytest.raises(ConfigError, match=r"IQL\.dropout is None in one and 0\.1 in another"):
        same_program([IQL(), IQL(dropout=0.1)])


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_usable(name):
    assert to_config(IQL.preset(name)) == to_config(IQL()) | PRESETS[name]


def test_an_unknown_preset_or_algorithm_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'antmaze'"):
        IQL.preset("ant-maze")
    with pytest.raises(ConfigError, match="did you mean 'iql'"):
        algorithm_class("iqll")
    assert [algorithm_name(algorithm_class(name)()) for name in ALGORITHMS] == list(ALGORITHMS)


def test_actions_that_an_algorithm_does_not_take_are_refused():
    check_fit(IQL(), Spec({"s": Vector(1)}, MultiDiscrete((2, 3))))
    with pytest.raises(SpecError, match="BCQ requires Continuous or Hybrid actions, but this log has MultiDiscrete"):
        check_fit(BCQ(), Spec({"s": Vector(1)}, MultiDiscrete((2, 3))))
    with pytest.raises(SpecError, match="learns from one reward, but this log has 2"):
        BCQ().stores(Spec({"s": Vector(1)}, Continuous((-1.0,), (1.0,)), rewards=2))


def test_a_class_of_ones_own_can_check_itself():
    @hyperparameters
    class Pair:
        low: float = field(0.0)
        high: float = field(1.0)
        size: int = field(1, least=1)

        def check(self):
            if self.low > self.high:
                raise ConfigError("low is above high")

    assert jax.tree.leaves(Pair(low=-1)) == [-1.0, 1.0]
    assert jax.tree.map(lambda x: x + 5, Pair()).low == 5.0
    with pytest.raises(ConfigError, match="low is above high"):
        Pair(low=2.0)


def test_numpy_numbers_are_numbers():
    made = IQL(expectile=np.float32(0.5), num_critics=np.int64(3), hidden=(np.int32(4),))
    assert (made.expectile, made.num_critics, made.hidden) == (0.5, 3, (4,))
    assert type(made.num_critics) is int
    with pytest.raises(ConfigError, match="expected a finite number"):
        IQL(temperature=10**400)


def test_what_a_class_declares_wrongly_and_values_of_a_wrong_kind_are_refused():
    class Config:
        rate: "Rate" = 0.1

    with pytest.raises(ConfigError, match=r"Config: an annotation is unknown: .*'Rate'.*\. fix: import its type"):
        hyperparameters(Config)

    @hyperparameters
    class Named:
        name: str = field("a")

    with pytest.raises(ConfigError, match=r"Size\.size: most and open_ends: expected a float\. fix: annotate it"):

        @hyperparameters
        class Size:
            size: int = field(2, most=3)

    with pytest.raises(ConfigError, match=r"Rate\.rate: choices of a float: expected none"):

        @hyperparameters
        class Rate:
            rate: float = field(1.0, choices={"one": 1.0})

    with pytest.raises(ConfigError, match=r"Named\.name = 3: expected text"):
        Named(name=3)
    with pytest.raises(ConfigError, match=r"IQL\.hidden = \(10{12},\): expected numbers of at most 2,147,483,647"):
        IQL(hidden=(10**12,))


@pytest.mark.parametrize(
    ("weights", "rewards", "expected"),
    [
        ((1.0, float("nan")), 2, "expected finite numbers, at least one not 0"),
        ((0.0, 0.0), 2, "expected finite numbers, at least one not 0"),
        ((1.0, 0.5, 2.0), 2, r"3 weights: expected 2\. fix: one per reward"),
        ((1.0, 0.5), None, r"2 weights: expected 1\. fix: one per reward"),
    ],
)
def test_weights_of_rewards_that_do_not_fit_the_log_are_refused(weights, rewards, expected):
    with pytest.raises(SpecError, match=expected):
        IQL(reward_weights=weights).stores(Spec({"s": Vector(1)}, Discrete(2), rewards=rewards))
