"""Lists in, lists out: a column of lists of numbers is read, learnt from and answered in the same form everywhere."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.runtime.cases import ONNX, WITHOUT
from tests.training.runs import bc, begin, finish
from tidelog import Columns, SpecError, read_log, runtime
from tidelog.policies.batch_inference import act_on_known, act_on_table, write_table
from tidelog.policies.export import export
from tidelog.types import Continuous, Vector

ROWS = 120
STATE, ACTION = "observation.state", "action"
NAMES = tuple(f"{STATE}[{place}]" for place in range(3))
MAPPING = Columns(episode="episode_index", observation=[STATE, "load"], action=ACTION, reward=None)


def robot(rows: int = ROWS) -> pl.DataFrame:
    """Recordings as LeRobot stores them: lists of numbers, of one length in all rows."""
    rng = np.random.default_rng(0)
    state = rng.normal(size=(rows, 3))
    action = state[:, :2] * 0.5 + 0.1 * rng.normal(size=(rows, 2))
    return pl.DataFrame({STATE: state.tolist(), "load": rng.normal(size=rows), ACTION: action.tolist(),
                         "episode_index": np.arange(rows) // 20})  # fmt: skip


@pytest.fixture(scope="module")
def policy():
    return finish(begin(bc(), read_log(robot(), MAPPING))).policy()


@pytest.fixture(scope="module")
def expected(policy):
    """The actions [N, 2] for the rows of the log, from arrays."""
    return np.asarray(policy(read_log(robot(), MAPPING).transitions.observation))


def as_text(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The columns of lists as text, as other programs write them."""
    return frame.with_columns(pl.Series(name, [str(cell) for cell in frame[name].to_list()]) for name in names)


def replaced(old: str, new: str, *names: str) -> pl.DataFrame:
    """The lists as text with other marks."""
    return as_text(robot(), *names).with_columns(pl.col(*names).str.replace_all(old, new, literal=True))


SPELLINGS = {
    "lists": robot(),
    "arrays": robot().with_columns(pl.col(STATE).list.to_array(3)),
    "nested": robot().with_columns(pl.Series(STATE, [[cell] for cell in robot()[STATE].to_list()])),
    "text": as_text(robot(), STATE, ACTION),
    "text of nested lists": as_text(robot(), STATE).with_columns("[" + pl.col(STATE) + "]"),
    "text without commas": replaced(",", " ", STATE),
    "tuples": replaced("[", "(", STATE, ACTION).with_columns(pl.col(STATE, ACTION).str.replace("]", ")", literal=True)),
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_log_of_lists_is_the_same_in_every_spelling(spelling):
    log = read_log(SPELLINGS[spelling], MAPPING)
    assert log.fingerprint() == read_log(robot(), MAPPING).fingerprint()
    assert log.spec.observation == {"numeric": Vector(4, (*NAMES, "load"))}
    assert isinstance(log.spec.action, Continuous)
    assert log.spec.action.names == ("action[0]", "action[1]")


@pytest.mark.parametrize(
    ("spelling", "ending"), [*((one, ".parquet") for one in SPELLINGS), ("lists", ".csv"), ("tuples", ".csv")]
)
def test_act_answers_its_own_training_file_with_lists(spelling, ending, policy, expected, tmp_path):
    frame = SPELLINGS[spelling]
    if ending == ".csv":
        frame = as_text(frame, STATE, ACTION)
    (frame.write_csv if ending == ".csv" else frame.write_parquet)(tmp_path / f"new{ending}")
    acted = act_on_table(policy, tmp_path / f"new{ending}")
    assert acted.columns == [*frame.columns, "policy_action"]  # the logged action stays
    np.testing.assert_allclose(np.asarray(acted["policy_action"].to_list()), expected, rtol=1e-5, atol=1e-6)
    for out in ("out.csv", "out.parquet"):  # what it wrote is answered again
        write_table(acted.rename({"policy_action": "before"}), tmp_path / out)
        assert act_on_table(policy, tmp_path / out)["policy_action"].to_list() == acted["policy_action"].to_list()


def test_python_numpy_and_onnx_read_lists(policy, expected, tmp_path):
    path = tmp_path / "policy"
    export(policy, path, onnx=ONNX)
    readers = {"jax": policy, "numpy": runtime.load(path)}
    frame, states = robot(), np.asarray(robot()[STATE].to_list())
    one = {STATE: states[7].tolist(), "load": frame["load"][7]}
    many = {STATE: states, "load": frame["load"].to_numpy()}
    for name, reader in readers.items():
        single = np.asarray(reader(one))
        assert single.shape == (2,), name
        np.testing.assert_allclose(single, expected[7], rtol=1e-4, atol=1e-5)
        lists = {STATE: states.tolist(), "load": frame["load"].to_list()}
        by_label = dict(zip(NAMES, states.T, strict=True)) | {"load": many["load"]}
        frames = (frame, as_text(frame, STATE), pd.DataFrame(frame.to_dicts()))
        for given in (many, lists, by_label, *frames):
            np.testing.assert_allclose(np.asarray(reader(given)), expected, rtol=1e-4, atol=1e-5, err_msg=name)
        for wrong, said in (
            ({STATE: states[:, :2], "load": many["load"]}, r"expected \[3\] or \[B, 3\]"),
            ({STATE: [1.0, 2.0], "load": 0.0}, r"expected \[3\]"),
            ({STATE: 1.0, "load": 0.0}, r"expected \[3\]"),
            (frame.with_columns(pl.Series(STATE, [[1.0]] * ROWS)), "a list of 1 in row 0: expected 3 numbers"),
            (frame.with_columns(pl.lit("[a, b, c]").alias(STATE)), "holds no numbers in row 0"),
        ):
            with pytest.raises(SpecError, match=said):
                reader(wrong)
    if not ONNX:
        pytest.skip(WITHOUT)


def test_lists_that_do_not_fit_are_named_or_left_out(policy, expected):
    frame = robot()
    cells = frame[STATE].to_list()
    holes = frame.with_columns(pl.Series(STATE, [None, [1.0, 2.0], *cells[2:]]))
    with pytest.raises(SpecError, match=r"column 'observation.state\[0\]' is empty in 2 row\(s\) \(1, 2\)"):
        act_on_table(policy, holes)
    acted, left = act_on_known(policy, holes)
    assert left["row"].to_list() == [1, 2]
    np.testing.assert_allclose(np.asarray(acted["policy_action"].to_list()), expected[2:], rtol=1e-5, atol=1e-6)
    with pytest.raises(SpecError, match="has lists of 2: expected 3 numbers"):
        act_on_table(policy, frame.with_columns(pl.Series(STATE, [cell[:2] for cell in cells])))


def test_a_missing_list_is_filled_as_when_the_log_was_read(tmp_path):
    cells = robot()[STATE].to_list()
    frame = robot().with_columns(pl.Series(STATE, [None, [1.0, None, 2.0], *cells[2:]]))
    pytest.importorskip("starlette")
    from tidelog.serving.app import ActEndpoint

    log = read_log(frame, Columns(episode="episode_index", observation=[STATE, "load"], action=ACTION, reward=None,
                                  missing="mean+flag"))  # fmt: skip
    policy = finish(begin(bc(), log)).policy()
    wanted = np.asarray(policy(log.transitions.observation))[:2]
    acted = act_on_table(policy, frame)["policy_action"].to_list()[:2]
    np.testing.assert_allclose(acted, wanted, rtol=1e-5, atol=1e-6)
    for row in (0, 1):
        seen = {STATE: [None] * 3 if row == 0 else [1.0, None, 2.0], "load": frame["load"][row]}
        np.testing.assert_allclose(np.asarray(policy(seen)), wanted[row], rtol=1e-4, atol=1e-5)
        body = json.dumps({"observations": [seen | {STATE: None} if row == 0 else seen]})
        sent = ActEndpoint(policy, 10).read(body.encode()).observation
        np.testing.assert_allclose(np.asarray(policy(sent))[0], wanted[row], rtol=1e-4, atol=1e-5)
    empty = pd.DataFrame({STATE: [None] * 4, "load": frame["load"].to_list()[:4]})  # a table is never one list
    assert np.asarray(policy(empty)).shape == (4, 2)
    features = log.features()
    assert features.columns == ["observation.state_0", "observation.state_1", "observation.state_2", "load"]
    assert features["observation.state_0"].is_nan().to_list()[:3] == [True, True, False]


def test_several_columns_of_actions_keep_their_form():
    frame = robot().with_columns(grip=pl.Series(np.random.default_rng(1).normal(size=ROWS)))
    mapping = Columns(observation=STATE, action=[ACTION, "grip"], reward=None, terminated=True)
    acted = act_on_table(finish(begin(bc(), read_log(frame, mapping))).policy(), frame)
    assert acted.columns[-2:] == ["action_action", "action_grip"]
    assert acted["action_action"].dtype == pl.List(pl.Float64)
    assert acted["action_grip"].dtype.is_float()
