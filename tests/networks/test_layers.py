"""Layers: dense networks, the recurrent unit, arrays and keys of the host, and rounded products."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from threadpoolctl import ThreadpoolController

import tidelog as tl
from tests.algorithms.worlds import world
from tests.training.runs import untimed
from tidelog.algorithms.optimisation import OPTIMISERS, init_opt_state
from tidelog.errors import SpecError
from tidelog.networks.layers import (
    ACTIVATIONS,
    GRU,
    MLP,
    PRODUCTS,
    WIDE,
    LayerNorm,
    Linear,
    drop,
    duplicate,
    float32,
    fold_in,
    from_host,
    int32,
    new_key,
    normal,
    orthogonal,
    product,
    rounded,
    split_keys,
    zeros,
)
from tidelog.runtime import networks as runtime
from tidelog.training import record
from tidelog.training.record import products_note

X = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)


def made(seed=0, sizes=(6, 16, 3), **options):
    return MLP.create(np.random.default_rng(seed), sizes, **options)


def run(network, x, **options):
    """Return the network's output, from one program."""
    return np.asarray(eqx.filter_jit(network)(x, **options))


@pytest.mark.parametrize(("inputs", "outputs"), [(5, 5), (7, 3), (3, 7), (4, 1)])
def test_initial_weights_are_orthogonal_with_their_gain(inputs, outputs):
    w = np.asarray(orthogonal(np.random.default_rng(0), inputs, outputs, 1.5))
    assert w.shape == (inputs, outputs)
    product = w @ w.T if inputs < outputs else w.T @ w
    np.testing.assert_allclose(product, 1.5**2 * np.eye(min(inputs, outputs)), atol=1e-5)


def test_weights_are_drawn_with_one_thread(monkeypatch):
    threads, qr = [], np.linalg.qr
    info = ThreadpoolController().select(user_api="blas").info
    monkeypatch.setattr(np.linalg, "qr", lambda a: threads.append([one["num_threads"] for one in info()]) or qr(a))
    before = [one["num_threads"] for one in info()]
    orthogonal(np.random.default_rng(0), 3, 3, 1.0)
    assert threads == [[1] * len(before)]
    assert [one["num_threads"] for one in info()] == before


def test_every_layer_starts_with_gain_root_two_and_no_bias():
    for layer in made(sizes=(6, 16, 16, 3)).layers:
        singular = np.linalg.svd(np.asarray(layer.weight), compute_uv=False)
        np.testing.assert_allclose(singular, math.sqrt(2.0), rtol=1e-5)
        np.testing.assert_array_equal(layer.bias, 0.0)


def test_orthogonal_matrices_are_not_all_reflected_alike():
    signs = [np.sign(np.diag(orthogonal(np.random.default_rng(seed), 3, 3, 1.0))) for seed in range(20)]
    assert len({tuple(s) for s in signs}) > 3  # of 8; right matrices fail for 2 in 10 million sets of seeds


@pytest.mark.full
def test_a_layer_of_segments_is_the_same_layer_row_by_row_and_so_is_its_gradient():
    layer = Linear.create(np.random.default_rng(0), 3, 2)
    x, toward = (jax.random.normal(jax.random.key(i), (4, 5, n)) for i, n in ((1, 3), (2, 2)))

    def slopes(rows, toward):
        return jax.grad(lambda layer, rows: jnp.sum(toward * jnp.tanh(layer(rows))), argnums=(0, 1))(layer, rows)

    np.testing.assert_allclose(layer(x), layer(x.reshape(20, 3)).reshape(4, 5, 2), rtol=1e-6)
    found, plain = slopes(x, toward), slopes(x.reshape(20, 3), toward.reshape(20, 2))
    np.testing.assert_allclose(found[0].weight, plain[0].weight, rtol=1e-5)
    np.testing.assert_allclose(found[0].bias, plain[0].bias, rtol=1e-5)
    np.testing.assert_allclose(found[1].reshape(20, 3), plain[1], rtol=1e-5)
    many = jax.vmap(slopes)(jnp.stack([x, -x]), jnp.stack([toward, toward]))
    np.testing.assert_allclose(many[0].weight[0], plain[0].weight, rtol=1e-5)


def test_the_last_layer_is_linear_unless_asked():
    assert run(made(), X).shape == (5, 3)
    assert (run(made(), X) < 0).any()
    assert (run(made(activate_last=True), X) >= 0).all()
    assert made(sizes=(6,))(X) is X


def test_layer_norm_centres_and_scales():
    def four(number):
        return np.full(4, number, np.float32)

    norm = LayerNorm(four(1.0), four(0.0))
    # mean 2, variance (4 + 0 + 0 + 4) / 4 = 2
    found = run(norm, np.array([0.0, 2.0, 2.0, 4.0], np.float32))
    np.testing.assert_allclose(found, np.array([-2, 0, 0, 2]) / math.sqrt(2), rtol=1e-5)
    shifted = LayerNorm(four(3.0), four(1.0))
    np.testing.assert_allclose(run(shifted, four(7.0)), 1.0)
    assert len(made(layer_norm=True).norms) == 1
    assert len(made(layer_norm=True, activate_last=True).norms) == 2
    normed = made(layer_norm=True)
    assert not np.allclose(run(normed, X), run(made(), X))
    assert np.allclose(run(normed, X), run(normed, np.float32(100) * X), atol=1e-3)


def test_dropout_zeroes_its_share_and_scales_the_rest():
    dropped = np.asarray(jax.jit(drop)(np.ones((100, 100), np.float32), 0.3, jax.random.key(0)))
    assert set(np.unique(np.round(dropped, 4))) == {0.0, np.float32(round(1 / 0.7, 4))}
    # 4.4 standard errors: a right dropout fails for 1 in 70,000 seeds
    assert abs(float((dropped == 0).mean()) - 0.3) < 0.02
    halves = np.hsplit(dropped == 0, 2)  # two entries share a random number, of which each has its own bits
    assert abs(np.corrcoef(*(half.ravel() for half in halves))[0, 1]) < 0.07


def test_dropout_needs_a_rate_and_a_key():
    net, key = made(sizes=(6, 16, 16, 3)), jax.random.key(1)
    plain, dropped = run(net, X), run(net, X, dropout=0.5, key=key)
    np.testing.assert_array_equal(run(net, X, dropout=0.5), plain)
    np.testing.assert_array_equal(run(net, X, key=key), plain)
    assert not np.allclose(dropped, plain)
    assert not np.allclose(dropped, run(net, X, dropout=0.5, key=jax.random.key(2)))
    np.testing.assert_array_equal(run(net, X, dropout=0.5, key=key), dropped)


def test_every_activation_is_known_without_jax():
    """Also far from 0, where a naive formula overflows."""
    assert runtime.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    x = np.concatenate([np.linspace(-6, 6, 241), [-1e4, 1e4, -200, 200]]).astype(np.float32)
    for name, function in ACTIVATIONS.items():
        with runtime.FiniteNumbers():
            np.testing.assert_allclose(runtime.ACTIVATIONS[name](np, x), function(x), rtol=1e-5, atol=2e-6)


def test_numbers_that_are_not_finite_are_refused_in_words():
    large = np.full(2, 3e38, np.float32)
    said = r"numbers that are not finite .*: expected observations like those of its log"
    with pytest.raises(SpecError, match=said), runtime.FiniteNumbers():
        np.square(large)
    with np.errstate(over="ignore"):
        assert np.isinf(large * large).all()  # NumPy's own settings are back


# The recurrent unit: an unroll equals its steps, a step that is not real resets.


@pytest.fixture(scope="module")
def unit() -> GRU:
    return GRU.create(np.random.default_rng(0), 3, 5)


def test_an_unroll_is_one_step_after_another(unit: GRU) -> None:
    x = np.random.default_rng(1).standard_normal((2, 4, 3)).astype(np.float32)
    carries = np.asarray(eqx.filter_jit(unit.unroll)(x, np.ones((2, 4), bool)))
    carry = unit.initial_state(2)
    for t in range(4):
        carry = eqx.filter_jit(unit)(carry, x[:, t])
        assert carries[:, t] == pytest.approx(np.asarray(carry), abs=1e-6)


def test_the_gates_are_those_of_cho(unit: GRU) -> None:
    x, h = np.asarray([0.3, -0.2, 0.5]), np.asarray([0.1, -0.4, 0.2, 0.0, 0.6])

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    into, from_h = x @ np.asarray(unit.inward), h @ np.asarray(unit.recurrent)
    reset, update = sigmoid(into[:5] + from_h[:5]), sigmoid(into[5:10] + from_h[5:10])
    candidate = np.tanh(into[10:] + reset * from_h[10:])
    found = np.asarray(eqx.filter_jit(unit)(h, x))
    assert found == pytest.approx(update * h + (1 - update) * candidate, abs=1e-6)


def test_an_episode_that_starts_within_the_window_starts_anew(unit: GRU) -> None:
    x = np.random.default_rng(2).standard_normal((1, 5, 3)).astype(np.float32)
    real = np.asarray([[False, False, True, True, True]])
    unroll = eqx.filter_jit(unit.unroll)
    found = np.asarray(unroll(x, real))
    alone = np.asarray(unroll(x[:, 2:], np.ones((1, 3), bool)))
    assert found[:, 2:] == pytest.approx(alone, abs=1e-7)
    assert not found[:, :2].any()


def test_segments_go_on_from_what_was_carried_and_forget_it_where_an_episode_begins(unit: GRU) -> None:
    x = np.random.default_rng(3).standard_normal((2, 6, 3)).astype(np.float32)
    first = np.zeros((2, 6), bool)
    first[0, 3] = first[1, 0] = True
    begin = np.random.default_rng(4).standard_normal((2, 5)).astype(np.float32)
    found = np.asarray(eqx.filter_jit(unit.follow)(begin, x, first))
    carry = begin
    for t in range(6):
        carry = np.where(first[:, t][:, None], np.float32(0.0), carry)
        carry = np.asarray(eqx.filter_jit(unit)(carry, x[:, t]))
        assert found[:, t] == pytest.approx(carry, abs=1e-6)
    fresh = np.asarray(eqx.filter_jit(unit.unroll)(x[1:], np.ones((1, 6), bool)))
    assert found[1:] == pytest.approx(fresh, abs=1e-6)


# Arrays and random keys of the host: copies, of the right type, equal to JAX's, and no program for every new shape.


COMPILED: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **facts: COMPILED.append(event) if "backend_compile" in event else None
)


@pytest.fixture
def programs():
    """Count the programs that a function compiles."""

    def count(function):
        before = len(COMPILED)
        function()
        return len(COMPILED) - before

    return count


@pytest.mark.parametrize("put", [from_host, float32])
def test_the_array_is_a_copy(put):
    values = np.ones((1024, 64), np.float32)  # aligned: `device_put` would keep this memory
    array = put(values)
    values[:] = 0.0
    assert np.asarray(array).min() == 1.0


def test_an_array_on_the_device_is_duplicated_into_its_own_buffer():
    first = from_host(np.arange(5.0))
    second = duplicate(first)
    jax.jit(lambda x: x + 1.0, donate_argnums=0)(first)
    assert first.is_deleted()
    np.testing.assert_array_equal(np.asarray(second), np.arange(5.0, dtype=np.float32))
    key = jax.random.key(3)
    np.testing.assert_array_equal(jax.random.key_data(duplicate(key)), jax.random.key_data(key))


def test_types_are_cast_on_the_host():
    assert float32(np.array([1, 2])).dtype == np.float32
    assert int32(np.array([1, 2])).dtype == np.int32
    assert from_host(np.array([1.5])).dtype == np.float32
    assert from_host(np.array([True])).dtype == bool
    assert zeros(2, 3).shape == (2, 3)


def test_new_shapes_compile_nothing(programs):
    def make():
        generator = np.random.default_rng(0)
        for width in (3, 5, 7, 11):
            MLP.create(generator, (width, width + 1, width + 2))
            duplicate(from_host(np.zeros(width)))
            int32(np.zeros(width))

    assert programs(make) == 0


def test_an_optimiser_starts_in_one_program_or_in_none(programs):
    network = MLP.create(np.random.default_rng(0), (13, 17, 19))
    assert programs(lambda: init_opt_state(lambda: optax.scale_by_adam(), network)) == 1
    assert programs(lambda: [init_opt_state(one, network) for one in OPTIMISERS.values()]) == 0


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_starts_as_optax_starts_it(name):
    network = MLP.create(np.random.default_rng(0), (3, 5, 2))
    expected = OPTIMISERS[name]().init(eqx.filter(network, eqx.is_inexact_array))
    state = init_opt_state(OPTIMISERS[name], network)
    assert jax.tree.structure(state) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_normal_numbers_drawn_as_one_row_are_those_of_jax():
    key = jax.random.key(3)
    for shape in ((7,), (3, 4, 5), (10, 100, 12)):
        assert np.array_equal(normal(key, shape), jax.random.normal(key, shape))


# Keys.

SEEDS = (0, 1, 7, 2**31 - 1, 2**31, -1)


def same(one, other):
    return np.array_equal(jax.random.key_data(one), jax.random.key_data(other))


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_equal_those_of_jax(seed):
    key = jax.random.key(seed)
    assert same(new_key(seed), key)
    for count in (1, 2, 5):
        keys = split_keys(key, count)
        assert all(map(same, keys, jax.random.split(key, count)))
    for number in (0, 1, 3, 2**31 - 2, 2**32 - 1):
        assert same(fold_in(key, number), jax.random.fold_in(key, number))


@pytest.mark.parametrize("change", [{"impl": "rbg"}, {"partitionable": False}])
def test_keys_of_other_generators_are_those_of_jax(change):
    with jax.threefry_partitionable(change.get("partitionable", True)):
        key = jax.random.key(3, impl=change.get("impl"))
        assert all(map(same, split_keys(key, 3), jax.random.split(key, 3)))
        assert same(fold_in(key, 5), jax.random.fold_in(key, 5))


def test_traced_keys_are_split_too():
    one, two = jax.jit(lambda key: split_keys(fold_in(key, 1), 2))(jax.random.key(3))
    assert all(map(same, (one, two), jax.random.split(jax.random.fold_in(jax.random.key(3), 1))))


def test_keys_compile_nothing(programs):
    assert programs(lambda: split_keys(fold_in(new_key(11), 13), 17)) == 0


# Products of layers: factors rounded to bfloat16 and added up in float32, where training asks for it alone.


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def nearest(x):
    """Factors as bfloat16 has them, as float64."""
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16)).astype(np.float64)


def test_bfloat16_has_eight_bits_by_hand():
    x, weight = np.float32([[1.0 + 2**-9, 3.0]]), np.float32([[1.0], [1.0 + 2**-7]])
    with rounded("bfloat16"):
        assert product(x, weight).item() == 1.0 + 3.0 * (1.0 + 2**-7)  # 1 + 2^-9 is 1; 1 + 2^-7 is itself
    assert product(x, weight).item() == np.float32(1.0 + 2**-9 + 3.0 * (1.0 + 2**-7))


@pytest.mark.parametrize("inputs", [20, WIDE])
@pytest.mark.parametrize("shape", [(), (6,), (3, 5)])
def test_products_are_those_of_rounded_factors_and_so_are_gradients(shape, inputs):
    x, weight, toward = numbers(*shape, inputs), numbers(inputs, WIDE, seed=1), numbers(*shape, WIDE, seed=2)

    def loss(x, weight):
        return jnp.sum(product(x, weight) * toward)

    with rounded("bfloat16"):
        found = jax.jit(product)(x, weight)
        to_x, to_weight = jax.jit(jax.grad(loss, argnums=(0, 1)))(x, weight)
    np.testing.assert_allclose(found, nearest(x) @ nearest(weight), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(to_x, nearest(toward) @ nearest(weight).T, rtol=1e-4, atol=1e-4)
    rows, slopes = x.reshape(-1, inputs), toward.reshape(-1, WIDE)
    wanted = nearest(rows).T @ nearest(slopes) if inputs >= WIDE else rows.T @ slopes
    np.testing.assert_allclose(to_weight, wanted, rtol=1e-4, atol=1e-4)
    assert found.dtype == to_x.dtype == to_weight.dtype == np.float32
    assert np.abs(np.asarray(found) - x @ weight).max() > 1e-4  # and they are not those in float32


def test_several_networks_at_once_have_the_products_of_each():
    x, weights = numbers(6, 20), numbers(3, 20, 8, seed=1)
    with rounded("bfloat16"):
        many = jax.vmap(product, in_axes=(None, 0))(x, weights)
        each = jnp.stack([product(x, weight) for weight in weights])
    np.testing.assert_allclose(many, each, rtol=1e-6)


def test_a_program_knows_its_products_and_float32_is_as_before():
    network, x = MLP.create(np.random.default_rng(0), (8, 16, 2)), jnp.asarray(numbers(5, 8))
    call = jax.jit(lambda x: network(x))
    before = call(x)
    with rounded("bfloat16"):
        other = call(x)
    assert (before != other).any()
    np.testing.assert_array_equal(call(x), before)
    with rounded("float32"):
        np.testing.assert_array_equal(call(x), before)


def test_a_training_is_rounded_and_its_resume_is_exact(tmp_path):
    world("continuous").save(tmp_path / "log")
    log, settings = tl.Log.load(tmp_path / "log"), {"hidden": (16, 16), "batch_size": 8}
    plain, whole = (
        tl.fit(
            tl.BC(**settings, matmul_precision=products),
            log,
            6,
            eval_every=3,
            out=tmp_path / products,
            save_seconds=0.0,
        )
        for products in PRODUCTS
    )
    one, two = (jax.tree.leaves(run.learners()[0].state.actor) for run in (plain, whole))
    assert all(leaf.dtype == np.float32 for leaf in two if jnp.issubdtype(leaf.dtype, jnp.floating))
    apart = max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(one, two, strict=True))
    assert 0.0 < apart < 0.05
    resumed = tl.resume(tmp_path / "bfloat16", checkpoint=3)
    assert untimed(resumed.metrics) == untimed(whole.metrics)
    for a, b in zip(two, jax.tree.leaves(resumed.learners()[0].state.actor), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_processor_without_such_products_is_told(monkeypatch):
    monkeypatch.setattr(record, "processor_flags", lambda: frozenset({"avx512f"}))
    assert products_note("float32") is None
    assert "fix: compare both, or drop matmul_precision (--matmul-precision)" in products_note("bfloat16")
    monkeypatch.setattr(record, "processor_flags", lambda: frozenset({"avx512_bf16"}))
    assert products_note("bfloat16") is None
    monkeypatch.setattr(record, "processor_flags", frozenset)
    settings = tl.BC(hidden=(4,), batch_size=8, matmul_precision="bfloat16")
    run = tl.fit(settings, world("continuous"), 1, train=False)
    assert any("bfloat16" in note for note in run.notes())
