"""The default limits on support are those that the study chose, and its evidence says again what they do."""

import pytest

from benchmarks.calibration import shown_of
from benchmarks.choose_limits import NAME, SPECIFIED, judged, named
from benchmarks.keep import kept
from tidelog import Limits


@pytest.fixture(scope="module")
def study():
    found = kept(NAME)
    return found, found["evidence"], [shown_of(row) for row in found["evidence"]]


def test_the_defaults_are_the_chosen_ones(study):
    assert named(Limits()) == study[0]["chosen"]


def test_kept_evidence_can_be_ruled_on_again(study):
    found, rows, seen = study
    chosen, specified = judged(rows, seen, Limits()), judged(rows, seen, Limits(**SPECIFIED))
    assert chosen["admissible"]
    assert not specified["admissible"]
    assert chosen["answered"] == found["of_chosen"]["answered"] > specified["answered"]
    assert chosen["covered"]["all"]["count"] == found["of_chosen"]["covered"]["all"]["count"]
    assert chosen["wrong"]["better"]["count"] == found["of_chosen"]["wrong"]["better"]["count"]


def test_no_step_looser_answers_more_and_is_admissible(study):
    found = study[0]
    assert all(not one["admissible"] or one["answered"] <= found["of_chosen"]["answered"]
               for one in found["one_step_looser"])  # fmt: skip
