"""Members together equal members alone, populations share one program, and results do not depend on chunking."""

import logging
from dataclasses import replace

import jax
import pytest

from tests.conformance.cases import CASES, differ, same
from tests.training.runs import untimed
from tidelog import ConfigError, fit


def programs(caplog):
    """Return the number of compilations of the loop in the log of compilations."""
    lines = [record.getMessage() for record in caplog.records]
    return sum(line.startswith("Compiling jit(chunk)") for line in lines)


@pytest.fixture(scope="module")
def number(case):
    """Return a number that two members of a population can differ in, and another value for it."""
    numbers = {"temperature": 10.0, "learning_rate": 0.02, "critic_learning_rate": 0.02}
    return next({name: value} for name, value in numbers.items() if hasattr(case.algorithm, name))


@pytest.mark.bits
@pytest.mark.sample("iql-discrete", "bc-continuous", "bcq-continuous", "fql-continuous", others="slow")
def test_bits_do_not_depend_on_chunks(case):
    whole, cut = case.trainer((case.algorithm, 0), steps=200), case.trainer((case.algorithm, 0), steps=200)
    assert whole.advance(200) == 200
    for chunk in (1, 7, 50, 1, 141):
        assert cut.advance(chunk) == chunk
    same(whole.learners[0], cut.learners[0])
    assert untimed(whole.report()) == untimed(cut.report())
    assert not whole.failures()


@pytest.mark.full
@pytest.mark.sample("bc-discrete", "iql-continuous", "bcq-continuous", "fql-continuous", others="slow")
def test_a_population_is_its_members_alone_from_one_compilation(case, number, caplog):
    members = [(case.algorithm, 3), (replace(case.algorithm, **number), 3)]
    case.trainer((case.algorithm, 0), (case.algorithm, 1), vmap=True).compile()
    case.trainer((case.algorithm, 0)).compile()
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        stacked, threads = case.trainer(*members, vmap=True), case.trainer(*members, vmap=False)
        stacked.advance(10)
        threads.advance(10)
    assert programs(caplog) == 0
    for stack, thread, member in zip(stacked.learners, threads.learners, members, strict=True):
        alone = case.trainer(member)
        alone.advance(10)
        same(thread, alone.learners[0])
        same(stack.state, alone.learners[0].state, rtol=1e-5, atol=1e-6)
    assert differ(stacked.learners[0].state, stacked.learners[1].state, by=1e-4)


@pytest.mark.full
def test_another_static_value_is_another_program(caplog):
    (case, *_) = [case for case in CASES if case.name == "bc"]
    case.trainer((case.algorithm, 0)).compile()
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        case.trainer((replace(case.algorithm, batch_size=3), 0)).compile()
    assert programs(caplog) == 1


@pytest.mark.parametrize(
    "change", [{"hidden": (8, 8)}, {"batch_size": 8}, {"gradient_clip": 0.1}, {"optimiser": "rmsprop"}]
)
def test_members_that_need_other_programs_are_refused(case, change):
    (field,) = change
    with pytest.raises(ConfigError, match=rf"differ in numbers only, but {type(case.algorithm).__name__}\.{field} is"):
        fit([case.algorithm, replace(case.algorithm, **change)], case.log, 1, train=False)
