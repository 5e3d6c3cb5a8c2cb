"""Dense networks and the recurrent unit: initialisation, options, and unrolls."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from tidelog.errors import SpecError
from tidelog.networks.layers import ACTIVATIONS, GRU, MLP, LayerNorm, Linear, drop, orthogonal
from tidelog.runtime import networks as runtime

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
