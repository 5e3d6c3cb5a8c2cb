"""The default limits on support are those that the study chose, and its evidence says again what they do."""

import numpy as np
import pytest

from benchmarks.calibration import decision
from benchmarks.choose_limits import (
    CODES,
    GRID,
    NAME,
    SPECIFIED,
    RowFacts,
    Rulings,
    _nested,
    judged,
    named,
    preferred,
    rows_read,
    table,
)
from benchmarks.keep import kept
from tidelog import Limits


@pytest.fixture(scope="module")
def study():
    found = kept(NAME)
    rows = rows_read()
    return found, rows, Rulings(rows), RowFacts(rows)


@pytest.mark.full
def test_the_defaults_are_the_chosen_ones(study):
    assert named(Limits()) == study[0]["chosen"]


def test_the_number_of_carrying_episodes_is_the_chosen_one():
    found = kept("choose_carrying")
    assert Limits().carrying_episodes == found["chosen"]
    keeping = {one["least"]: one["keeps"] for one in found["tried"]}
    assert not any(keeps for least, keeps in keeping.items() if least < found["chosen"]), "no smaller number keeps it"


@pytest.mark.full
def test_kept_evidence_can_be_ruled_on_again(study):
    found, _, rulings, facts = study
    chosen, specified = (judged(facts, rulings.of(limits)) for limits in (Limits(), Limits(**SPECIFIED)))
    assert chosen["admissible"]
    assert chosen["answered"] == found["of_chosen"]["answered"] > specified["answered"]
    assert chosen["covered"]["all"] == found["of_chosen"]["covered"]["all"]
    assert chosen["wrong"] == found["of_chosen"]["wrong"]


@pytest.mark.full
@pytest.mark.parametrize("change", [{}, SPECIFIED, {"earning_episodes": 0.0, "effective_episodes": 25.0}])
def test_looking_limits_up_decides_as_the_judge_does(study, change):
    _, rows, rulings, _ = study
    some = np.random.default_rng(0).choice(len(rows), 300, replace=False)
    limits = Limits(**{**named(Limits()), **change})
    asked = [CODES[decision(rows[i]["shown"], limits)[0]] for i in some]
    assert rulings.of(limits)[some].tolist() == asked


def test_no_limit_is_changed_for_less_than_one_answer_in_a_hundred():
    present = Limits(unsupported_mass=0.1, largest_weight=0.1)
    near, far = (Limits(unsupported_mass=0.2, largest_weight=weight) for weight in (0.1, 0.2))
    assert preferred([(present, {"answered": 199}), (near, {"answered": 201})], present) == present
    assert preferred([(present, {"answered": 198}), (near, {"answered": 201})], present) == near
    assert preferred([(far, {"answered": 201}), (near, {"answered": 200})], present) == near
    loose = Limits(unsupported_mass=0.3, largest_weight=0.1)
    far, near = (Limits(unsupported_mass=mass, largest_weight=0.1) for mass in (0.02, 0.2))
    assert preferred([(far, {"answered": 9}), (near, {"answered": 9})], loose) == near
    looser, tighter = (Limits(largest_weight=0.1, unsupported_mass=mass) for mass in (0.2, 0.05))
    assert preferred([(looser, {"answered": 9}), (tighter, {"answered": 9})], present) == tighter


@pytest.mark.full
def test_each_limit_of_the_grid_refuses_something(study):
    _, _, rulings, _ = study
    for name, values in GRID.items():
        refused = [int(rulings.fails[name, value][0].sum()) for value in values]
        assert refused == sorted(refused, reverse=True)
        assert refused[0] > refused[-1]


@pytest.mark.full
def test_no_step_looser_answers_more_and_is_admissible(study):
    found = study[0]
    assert all(not one["admissible"] or one["answered"] <= found["of_chosen"]["answered"]
               for one in found["one_step_looser"])  # fmt: skip


@pytest.mark.full
def test_evidence_survives_its_table(study):
    _, rows, _, _ = study
    columns, values = table(rows[::50])
    assert len(columns) == len(set(columns))
    assert [_nested(columns, one) for one in values] == rows[::50]
