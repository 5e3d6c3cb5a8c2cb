"""Learning studies with kept results: `pytest -m slow`."""

import pytest

from benchmarks import cartpole, icu_sepsis, pendulum
from tests.shared import shared

pytestmark = pytest.mark.slow


def test_iql_ends_clearly_above_the_expert_on_icu_sepsis() -> None:
    shared("data/icu_sepsis/dynamics.npz")
    found = icu_sepsis.study()
    assert found["expert"] == pytest.approx(0.7818448903, abs=1e-8)
    assert found["iql"]["interval"].low > found["expert"] + 0.01
    assert found["iql"]["interval"].low > found["bc"]["interval"].high


def test_iql_is_better_than_bc_on_mixed_pendulum_logs() -> None:
    assert pendulum.study()["interval"].low > 0


def test_discrete_bcq_balances_cartpole_from_mixed_logs_and_bc_does_not() -> None:
    found = cartpole.study()
    assert sum(found["discrete_bcq"]) / len(found["discrete_bcq"]) >= 0.9 * found["most"]
    assert found["interval"].low > 0
