"""Policies answer people with the labels of the log, and programs with codes."""

import json

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.runtime.cases import FIVE, policy
from tidelog import SpecError, runtime
from tidelog.runtime.way_of_acting import LabelledActions

ROW = {"age": 3.0, "dose": 1.0, "pressure": 1.0, "ward": "b", "sex": "m"}
NAMES = np.asarray(FIVE.names)


def rows(count):
    """Different patients."""
    rng = np.random.default_rng(0)
    numbers = {name: 10.0 * rng.standard_normal(count) for name in ("age", "dose", "pressure")}
    return numbers | {"ward": rng.choice(["a", "b", "c"], count), "sex": rng.choice(["f", "m"], count)}


@pytest.fixture(scope="module", params=["jax", "numpy", "loaded"])
def reader(request, tmp_path_factory):
    """A policy of named actions, in memory, on NumPy, and loaded again."""
    whole = policy("iql, choice")
    path = whole.save(tmp_path_factory.mktemp("labels") / "policy")
    return {"jax": whole, "numpy": runtime.load(path), "loaded": tl.load_policy(path)}[request.param]


def test_one_answer_is_a_label_with_its_code(reader):
    answer = reader(ROW)
    code, _ = reader.act(ROW)
    assert str(answer) == answer.labels == answer.tolist() == FIVE.names[code]
    assert answer.codes == code == reader.probabilities(ROW).argmax()
    assert answer == FIVE.names[code]
    assert answer != "none of them"
    assert {FIVE.names[code]: "dose"}[answer] == "dose"
    assert repr(answer) == f"LabelledActions({FIVE.names[code]!r}, codes={code})"
    assert json.dumps(answer.tolist()) == f'"{FIVE.names[code]}"'


def test_many_answers_are_labels_with_their_codes(reader):
    answer = reader(rows(40))
    codes, _ = reader.act(rows(40))
    assert len(set(codes)) > 1
    np.testing.assert_array_equal(answer.codes, codes)
    np.testing.assert_array_equal(answer.labels, NAMES[codes])
    np.testing.assert_array_equal(np.asarray(answer), NAMES[codes])
    assert list(answer) == answer.tolist() == NAMES[codes].tolist()
    assert (answer == NAMES[codes]).all()
    assert ((answer != FIVE.names[codes[0]]) == (codes != codes[0])).all()
    assert answer[3] == FIVE.names[codes[3]]
    np.testing.assert_array_equal(answer[codes == codes[0]].codes, codes[codes == codes[0]])
    assert (len(answer), answer.shape) == (40, (40,))
    assert pl.Series(answer.labels).to_list() == answer.tolist()
    assert len(repr(answer)) < 1000
    assert len(repr(reader(rows(4000)))) < 1000


def test_every_way_of_acting_answers_with_labels(reader):
    seen = rows(40)
    for answer in (reader.mode(seen), reader.sample(seen, 3), reader.sample_with_propensity(seen, 3)[0]):
        assert isinstance(answer, LabelledActions)
    codes, chances = reader.act(seen, 3)
    np.testing.assert_array_equal(reader.sample(seen, 3).codes, codes)
    np.testing.assert_allclose(chances, reader.probabilities(seen)[np.arange(40), codes], rtol=1e-5)
    assert reader.act(seen)[1] is None


def test_labels_are_no_numbers(reader):
    answer = reader(rows(40))
    for use in (lambda: answer == 1, lambda: answer == answer.codes, lambda: answer.codes == answer,
                lambda: np.asarray(answer, np.int32), lambda: np.asarray(answer, float)):  # fmt: skip
        with pytest.raises(SpecError, match=r"fix: (use|compare) \.codes"):
            use()
    with pytest.raises(IndexError):
        NAMES[answer]
    with pytest.raises(TypeError):
        answer + 1


def test_probabilities_are_asked_for_by_labels_and_by_codes():
    whole, seen = policy("iql, choice"), rows(40)
    answer = whole.sample(seen, 1)
    by_code = whole.log_probability(seen, answer.codes)
    for given in (answer, answer.labels, answer.tolist()):
        np.testing.assert_array_equal(whole.log_probability(seen, given), by_code)
    assert whole.log_probability(ROW, "down") == whole.log_probability(ROW, 2)
    with pytest.raises(SpecError, match="'action' is 'dwn' in row 0, unknown in the log: did you mean 'down'"):
        whole.log_probability(ROW, "dwn")


def test_actions_without_labels_are_arrays():
    assert isinstance(policy("iql, box")(rows(3)), np.ndarray)
    assert isinstance(policy("ppg, dials")(rows(3)), np.ndarray)
    log = tl.Log.from_arrays(observation=np.zeros((4, 2)), action=[0, 1, 0, 1], reward=None)
    plain = tl.fit(tl.BC(hidden=(4,)), log, 1, progress=False).policy()
    assert plain(np.zeros((3, 2))).dtype == np.int32
    assert plain(np.zeros(2)) == plain.act(np.zeros(2))[0]
