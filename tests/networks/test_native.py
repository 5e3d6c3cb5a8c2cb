"""Native layers (tidelog-kernels): the numbers of XLA's, the same bits on any threads, and who uses them."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tidelog as tl
from tests.training.runs import bc, begin, finish, stop_at
from tidelog import load_run
from tidelog.algorithms import short_form
from tidelog.auto import sharpness
from tidelog.errors import ConfigError
from tidelog.networks import native
from tidelog.networks.layers import MLP, rounded
from tidelog.networks.pictures import LAYERS, Convolutions
from tidelog.ope import propensities
from tidelog.policies.policy import fingerprint
from tidelog.training.run import agreement
from tidelog.types import Image

there = pytest.mark.skipif(native.level() == 0, reason="tidelog-kernels is not installed, or not for this processor")
SHAPES = [  # widths, ReLU after the last layer, rows
    ((17, 256, 256, 6), False, 256),
    ((23, 64, 1), False, 100),
    ((17, 40, 33), True, 31),
    ((5, 3), False, 1),
    ((3, 1), True, 7),
    ((4, 8, 2), False, 0),
]


def network(sizes, relu_last):
    return MLP.create(np.random.default_rng(0), sizes, activate_last=relu_last)


def loss(net, x):
    outputs = net(x)
    return jnp.sum(outputs * jnp.cos(jnp.arange(outputs.size).reshape(outputs.shape)))


def gap(one, two):
    """The largest difference of two trees, relative to the norm of each array."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return max(float(jnp.linalg.norm(a - b) / (1e-30 + jnp.linalg.norm(a))) for a, b in pairs)


def natively(function, *arguments, precision="float32"):
    """What a function returns with native layers, which it must have called."""

    def call(*arguments):
        with rounded(precision):
            return function(*arguments)

    with native.in_training("float32"):
        assert "tidelog_" in eqx.filter_jit(call).lower(*arguments).as_text()
        return eqx.filter_jit(call)(*arguments)


@there
@pytest.mark.parametrize(("sizes", "relu_last", "rows"), SHAPES)
def test_values_and_gradients_are_those_of_xla(sizes, relu_last, rows):
    net, x = network(sizes, relu_last), jax.random.normal(jax.random.key(1), (rows, sizes[0]))
    for function in (loss, eqx.filter_grad(loss), jax.grad(loss, 1), eqx.filter_value_and_grad(loss)):
        assert gap(function(net, x), natively(function, net, x)) < 1e-5
    with native.in_training("float32"):  # what nobody asks for is not computed
        assert "to_input = false" in eqx.filter_jit(eqx.filter_grad(loss)).lower(net, x).as_text()
        assert "to_weights = false" in eqx.filter_jit(jax.grad(loss, 1)).lower(net, x).as_text()
    both = eqx.filter_grad(lambda pair: loss(*pair))
    assert gap(both((net, x)), natively(both, (net, x))) < 1e-5


@there
@pytest.mark.skipif(native.level() != native.BFLOAT16, reason="this processor does not multiply bfloat16")
def test_rounded_products_are_as_far_from_float32_as_those_of_xla():
    net, x = network((17, 256, 256, 6), False), jax.random.normal(jax.random.key(1), (256, 17))
    exact = eqx.filter_grad(loss)(net, x)
    with rounded("bfloat16"):
        ours, theirs = natively(eqx.filter_grad(loss), net, x, precision="bfloat16"), eqx.filter_grad(loss)(net, x)
    assert 1e-3 < gap(exact, ours) < 1.2 * gap(exact, theirs)


@there
def test_many_inputs_of_one_network_are_one_call_and_many_networks_are_many():
    net, x = network((5, 16, 3), False), jax.random.normal(jax.random.key(1), (4, 7, 5))
    nets = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf, leaf - 1, -leaf]), net)
    for function, own in (
        (jax.vmap(jax.grad(loss, 1), (None, 0)), net),  # gradients of inputs: rows of one call
        (jax.vmap(eqx.filter_grad(loss), (None, 0)), net),  # of each input's own network: sums over its rows
        (eqx.filter_vmap(eqx.filter_grad(loss)), nets),
        (jax.vmap(jax.vmap(lambda x: net(x[None])[0])), None),
    ):
        arguments = (x,) if own is None else (own, x)
        assert gap(function(*arguments), natively(function, *arguments)) < 1e-5


@there
@pytest.mark.parametrize(("layers", "side", "dense"), [("small", 9, True), ("nature", 36, True), ("impala", 12, False)])
def test_layers_of_pictures_are_dense_layers_of_their_views(layers, side, dense):
    image = Image(side, side, 2)
    net = Convolutions.create(np.random.default_rng(0), image, LAYERS[layers])
    seen = np.random.default_rng(1).integers(0, 255, (5, side, side, 2)).astype(np.uint8)
    slope = eqx.filter_grad(lambda net: jnp.sum(jnp.sin(net(seen))))
    with native.in_training("float32"):
        assert ("tidelog_" in eqx.filter_jit(slope).lower(net).as_text()) == dense  # stacks stay with XLA
    if dense:
        assert gap(slope(net), natively(slope, net)) < 1e-5


@there
def test_second_derivatives_are_those_of_xla():
    net, x = network((5, 16, 8, 3), True), jax.random.normal(jax.random.key(1), (7, 5))

    def penalty(net, x):
        """A penalty on the gradients by inputs and by weights, as some algorithms have one."""
        by_net, by_x = eqx.filter_grad(loss)(net, x), jax.grad(loss, 1)(net, x)
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves((by_net, by_x))) + loss(net, x)

    for function in (eqx.filter_grad(penalty), jax.grad(penalty, 1)):
        assert gap(function(net, x), natively(function, net, x)) < 1e-5


@there
def test_layers_that_xla_promotes_or_broadcasts_are_left_to_it():
    weight, bias, x = jnp.ones((5, 3)), jnp.ones(3), jnp.ones((4, 5))
    with native.in_training("float32"):
        assert native.takes(x, ((weight, bias),))
        for layer in ((weight.astype(jnp.bfloat16), bias), (weight, bias[:1]), (weight, jnp.ones(()))):
            assert not native.takes(x, (layer,))
        for rows in (jnp.ones((0, 5)), jnp.ones((2, 0, 5)), jnp.ones((4, 0))):
            net = network((rows.shape[-1] or 1, 3), False)
            net = net if rows.shape[-1] else eqx.tree_at(lambda net: net.layers[0].weight, net, jnp.ones((0, 3)))
            assert eqx.filter_jit(net)(rows).shape == (*rows.shape[:-1], 3)


@there
def test_what_is_not_a_number_stays_so():
    net, x = network((5, 16, 3), True), jnp.ones((4, 5)).at[1, 2].set(jnp.nan)
    assert np.isnan(natively(lambda x: net(x), x)[1]).all()
    assert np.isfinite(natively(lambda x: net(x), x)[2:]).all()


@there
def test_other_layers_are_those_of_xla():
    x = jnp.ones((4, 5))
    for net in (
        MLP.create(np.random.default_rng(0), (5, 8, 3), activation=jnp.tanh),
        MLP.create(np.random.default_rng(0), (5, 8, 3), layer_norm=True),
        network((5, 8, 3), False),
    ):
        inputs = x.astype(jnp.float16) if net.activation is jax.nn.relu and not net.norms else x
        by_xla = net(inputs)
        with native.in_training("float32"):
            assert jnp.allclose(eqx.filter_jit(net)(inputs), by_xla, atol=1e-3)
    net, dropping = network((5, 8, 3), True), {"dropout": 0.5, "key": jax.random.key(0)}
    by_xla = net(x, **dropping)
    with native.in_training("float32"):
        assert jnp.allclose(eqx.filter_jit(net)(x, **dropping), by_xla, atol=1e-6)


@there
def test_a_call_that_does_not_fit_is_refused_in_words():
    def call(*arrays, **settings):
        result = jax.ShapeDtypeStruct((4, 3), jnp.float32)
        attributes = {"relu_last": False, "rounded": False, **settings}
        return jax.ffi.ffi_call("tidelog_forward", result)(*arrays, **attributes)

    x, weight, bias = jnp.ones((4, 5)), jnp.ones((5, 3)), jnp.ones(3)
    assert call(x, weight, bias).shape == (4, 3)
    for arrays, words in (
        ((x, weight[:4], bias), "the weight or the bias of layer 0 has another shape"),
        ((x, weight, bias[:2]), "the weight or the bias of layer 0 has another shape"),
        ((x[:3], weight, bias), "the outputs of layer 0 have another shape"),
        ((x, weight), "x, then the weight and the bias of each layer"),
        ((x.astype(jnp.int32), weight, bias), "float32 arrays"),
    ):
        with pytest.raises(Exception, match=words):
            jax.block_until_ready(call(*arrays))


BITS = """
import os, sys
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(sys.argv[1])]))
from tidelog import IQL, collect, fit
from tidelog.networks import native
from tidelog.ope import propensities
from tidelog.policies.policy import fingerprint
from tidelog.training.run import agreement
assert native.can_multiply(sys.argv[2])
log = collect("treatment", episodes=300, seed=0)
run = fit(IQL(hidden=(64, 64), batch_size=256, matmul_precision=sys.argv[2]), log, steps=20)
print(fingerprint(run.learners()[0].state))
"""


@there
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"][: native.level()])
def test_bits_do_not_depend_on_threads(precision, tmp_path):
    def bits(cores):
        words = [sys.executable, "-c", BITS, str(cores), precision]
        return subprocess.run(words, capture_output=True, check=True, text=True, cwd=tmp_path).stdout

    assert bits(1) == bits(2)


@there
def test_training_uses_them_and_policies_do_not(monkeypatch, origin, tmp_path):
    run = finish(begin(bc(), origin, tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["machine"]["products"] == "native"
    monkeypatch.setattr(native, "dense", None)  # calling it would fail
    assert agreement(run.policy(), origin)
    assert agreement(load_run(tmp_path / "run").policy(), origin)


@there
def test_a_step_is_traced_once(monkeypatch, origin):
    traces, step = [], short_form.step
    monkeypatch.setattr(short_form, "step", lambda *inputs: traces.append(1) or step(*inputs))
    tl.fit(tl.BC(hidden=(5,), batch_size=11), origin, 20, progress=False)  # sizes that no other test has
    assert len(traces) == 1


@there
def test_a_run_goes_on_as_it_began(monkeypatch, origin, tmp_path):
    def whole(folder):
        return fingerprint(finish(begin(bc(), origin, tmp_path / folder)).learners()[0].state)

    native_bits = whole("native")
    monkeypatch.setenv(native.SWITCH, "0")
    xla_bits = whole("xla")
    assert native_bits != xla_bits

    stop_at(begin(bc(), origin, tmp_path / "begun"), 14)
    monkeypatch.delenv(native.SWITCH)
    assert fingerprint(finish(load_run(tmp_path / "begun")).learners()[0].state) == xla_bits

    stop_at(begin(bc(), origin, tmp_path / "other"), 14)
    monkeypatch.setattr(native, "_best", lambda: 0)  # another machine
    with pytest.raises(ConfigError, match=r"trained with native layers.* fix: install tidelog-kernels"):
        finish(load_run(tmp_path / "other"))
    monkeypatch.setenv(native.SWITCH, "0")
    run = load_run(tmp_path / "other")
    assert "products: native then, XLA now" in run.record.differences()
    assert finish(run).finished


@there
def test_a_run_of_rounded_products_asks_for_a_processor_that_multiplies_them(monkeypatch, origin, tmp_path):
    monkeypatch.setattr(native, "_best", lambda: native.FLOAT32)
    run = begin(bc(matmul_precision="bfloat16"), origin, tmp_path / "run")
    assert run.record.products == "XLA"
    monkeypatch.setattr(native, "_best", lambda: native.BFLOAT16)
    run = stop_at(begin(bc(matmul_precision="bfloat16"), origin, tmp_path / "rounded"), 0)
    assert run.record.products == "native"
    monkeypatch.setattr(native, "_best", lambda: native.FLOAT32)
    with pytest.raises(ConfigError, match=r"native layers .* in bfloat16, and this process has none"):
        finish(load_run(tmp_path / "rounded"))


@there
def test_a_verdict_and_a_suggestion_do_not_hang_on_what_is_installed(monkeypatch, log):
    monkeypatch.setattr(propensities, "FEWEST", 20)

    def answers():
        clone, _ = propensities.cloned(log, 0)
        rungs = sharpness.population_fit(robot, [1.0], 0.9, 20)[0]
        return fingerprint(clone.params), sharpness.cross_fit(log, 0.9, 20).q.tobytes(), repr(rungs)

    robot = tl.collect("point-mass", episodes=6, seed=0)
    installed = answers()
    monkeypatch.setenv(native.SWITCH, "0")
    assert answers() == installed


@pytest.fixture
def fresh(monkeypatch):
    """The choice is made again, and forgotten afterwards."""
    monkeypatch.delenv(native.SWITCH, raising=False)
    native._best.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    native._best.cache_clear()


def test_a_package_that_cannot_be_used_is_named_once(fresh):
    def load():
        raise OSError("libtidelog.so: cannot open shared object file")

    fresh.setitem(sys.modules, "tidelog_kernels", SimpleNamespace(load=load))
    with pytest.warns(UserWarning, match=r"cannot be used \(libtidelog.so: .*fix: install it again"):
        assert native.level() == 0
    assert not native.can_multiply("float32")


def test_without_the_package_and_switched_off_xla_computes(fresh):
    fresh.setitem(sys.modules, "tidelog_kernels", None)
    assert native.level() == 0
    with pytest.raises(ConfigError, match="native layers"), native.in_training("float32"):
        pass
    x = jnp.ones((2, 3))
    with native.in_training(None):
        assert not native.takes(x, ((jnp.ones((3, 1)), jnp.ones(1)),))
