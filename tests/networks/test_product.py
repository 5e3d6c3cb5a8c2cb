"""Products of layers: factors rounded to bfloat16 and added up in float32, where training asks for it alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tests.training.runs import untimed
from tidelog.networks.layers import MLP, PRODUCTS, WIDE, product, rounded
from tidelog.training import record
from tidelog.training.record import products_note


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
