"""A table in, the same table with actions out; errors name the rows."""

import gzip
import re

import numpy as np
import polars as pl
import pytest

from tests.envs.corridor import chain
from tests.training.runs import bc, begin, finish, iql
from tidelog import Columns, ConfigError, Log, SpecError, collect, read_log
from tidelog.policies.batch_inference import act_on_known, act_on_table, write_table


@pytest.fixture
def policy(trained):
    return trained


@pytest.fixture
def frame(log):
    """New patients: the log's features in another order, and unknown columns."""
    seen = log.transitions.observation
    words = np.asarray(log.spec.observation["categorical"].vocabularies[0])
    numeric = {name: seen["numeric"][:, i] for i, name in enumerate(log.spec.observation["numeric"].names)}
    kidneys = words[seen["categorical"][:, 0]]
    return pl.DataFrame({"id": range(log.steps), "kidneys": kidneys, **dict(reversed(numeric.items())), "note": "a, b"})


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".csv.gz"])
def test_every_row_gets_the_action_of_its_features(ending, policy, log, frame, tmp_path):
    path = tmp_path / f"new{ending}"
    if ending == ".csv.gz":
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        write_table(frame, path)
    acted = act_on_table(policy, path)
    wanted = policy(log.transitions.observation).labels
    assert acted["action"].to_list() == wanted.tolist()
    assert len(set(wanted)) > 1
    assert acted.columns == [*frame.columns, "action"]
    assert acted["note"].to_list() == ["a, b"] * log.steps
    assert acted["id"].cast(pl.Int64).to_list() == list(range(log.steps))


def put(frame, name, values):
    """Return the table with other cells (row from 1) in a column of text."""
    column = frame[name].cast(pl.String).to_list()
    for row, value in values.items():
        column[row - 1] = value
    return frame.with_columns(pl.Series(name, column, pl.String))


MISFITS = {
    "text": (lambda f: put(f, "hour", {3: "noon", 9: "x"}),
             "column 'hour' is 'noon' in 2 row(s) (3, 9), expected a number"),
    "empty": (lambda f: put(f, "hour", {2: None}), "column 'hour' is empty in 1 row(s) (2), expected a number"),
    "infinite": (lambda f: put(f, "strain", {5: "inf"}), "column 'strain' is 'inf' in 1 row(s) (5), expected a number"),
    "a word": (lambda f: put(f, "kidneys", {4: "helthy"}),
               "column 'kidneys' is 'helthy' in 1 row(s) (4), unknown in the"),
    "mend": (lambda f: put(f, "kidneys", {4: "helthy"}), "policy's log: did you mean 'healthy'?"),
    "many": (lambda f: put(f, "kidneys", dict.fromkeys(range(1, 13))),
             "in 12 row(s) (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."),
    "misnamed": (lambda f: f.rename({"hour": "hours"}), "has no column 'hour' (1 missing): did you mean 'hours'?"),
    "missing": (lambda f: f.drop("hour", "kidneys"), "has no column 'hour' (2 missing)"),
    "no rows": (lambda f: f.head(0), "has no rows: expected at least one"),
}  # fmt: skip


@pytest.mark.parametrize("misfit", MISFITS)
def test_rows_that_do_not_fit_are_named(misfit, policy, frame, tmp_path):
    change, message = MISFITS[misfit]
    write_table(change(frame), tmp_path / "new.csv")
    with pytest.raises(SpecError, match=re.escape(message)):
        act_on_table(policy, tmp_path / "new.csv")


def test_a_mapping_says_where_the_allowed_actions_stand(policy, frame, log, tmp_path):
    rng = np.random.default_rng(0)
    mask = rng.random((log.steps, 6)) < 0.3
    mask[np.arange(log.steps), rng.integers(0, 6, log.steps)] = True
    names = [f"may_{i}" for i in range(6)]
    table = frame.with_columns(pl.Series(name, mask[:, i].astype(int)) for i, name in enumerate(names))
    write_table(table, tmp_path / "new.csv")
    mapping = tmp_path / "columns.toml"
    text = f'observation = ["severity"]\naction = "treatment"\naction_mask = {names}\n'.replace("'", '"')
    mapping.write_text(text)
    acted = act_on_table(policy, tmp_path / "new.csv", mapping)["action"].to_list()
    chosen = [log.spec.action.names.index(name) for name in acted]
    assert mask[np.arange(log.steps), chosen].all()
    write_table(put(table, "may_2", {7: "perhaps"}), tmp_path / "odd.csv")
    with pytest.raises(SpecError, match=r"the action mask is invalid in 1 row\(s\) \(7\)"):
        act_on_table(policy, tmp_path / "odd.csv", mapping)
    write_table(table.rename({"may_5": "my_5"}), tmp_path / "odd.csv")
    with pytest.raises(SpecError, match="the table has no mask column 'may_5': did you mean 'my_5'"):
        act_on_table(policy, tmp_path / "odd.csv", mapping)
    mapping.write_text(text.replace(', "may_5"', ""))
    with pytest.raises(SpecError, match=r"mask has shape .*: expected \[113, 6\]"):
        act_on_table(policy, tmp_path / "new.csv", mapping)


def test_new_rows_without_a_header_and_with_allowed_names(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    names = ["low", "high", "none"]
    frame = pl.DataFrame({"x": rows[:, 0], "y": rows[:, 1], "a": [names[row % 3] for row in range(40)],
                          "may": [f"{names[row % 3]}|low" for row in range(40)]})  # fmt: skip
    frame.write_csv(tmp_path / "new.csv", include_header=False)
    (tmp_path / "columns.toml").write_text(
        'observation = ["column_1", "column_2"]\naction = "column_3"\naction_mask = "column_4"\nheader = false\n'
        "terminated = true\n"
    )
    log = read_log(tmp_path / "new.csv", tmp_path / "columns.toml")
    policy = begin(bc(hidden=(8,)), log).policy(0)
    acted = act_on_table(policy, tmp_path / "new.csv", tmp_path / "columns.toml")
    assert acted.height == 40
    allowed = [one in may.split("|") for one, may in zip(acted["action"], acted["column_4"], strict=True)]
    assert all(allowed)
    assert len(set(acted["action"])) > 1


def test_probabilities_and_values_stand_beside_the_actions(policy, frame, log, tmp_path):
    acted = act_on_table(policy, frame, probabilities=True)
    names = policy.spec.action.names
    chances = acted.select(f"probability_{name}" for name in names).to_numpy()
    np.testing.assert_allclose(chances, policy.probabilities(log.transitions.observation), rtol=1e-6)
    assert acted["action"].to_list() == [names[best] for best in chances.argmax(1)]
    critic = begin(iql(hidden=(8,)), log).policy(0)
    values = act_on_table(critic, frame, probabilities=True).select(f"q_{name}" for name in names).to_numpy()
    np.testing.assert_allclose(values, critic.q_values(log.transitions.observation), rtol=1e-5)
    assert not [name for name in acted.columns if name.startswith("q_")], "behaviour cloning has no critic"
    assert "probability_none" not in act_on_table(policy, frame).columns


def test_vectors_of_actions_get_a_column_each(tmp_path):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.random(20), "dose": rng.random(20), "rate": rng.random(20)})
    columns = {"observation": ["x"], "action": ["dose", "rate"], "bounds": [0, 1], "terminated": True}
    policy = begin(bc(), read_log(frame, columns), held_out=0.0).policy()
    write_table(frame, tmp_path / "new.csv")
    acted = act_on_table(policy, tmp_path / "new.csv")
    assert acted.columns == ["x", "dose", "rate", "action_dose", "action_rate"]
    np.testing.assert_allclose(acted["action_rate"], policy({"x": frame["x"].to_numpy()})[:, 1], rtol=1e-5)


def test_codes_without_words_are_read_as_they_are(tmp_path):
    policy = begin(bc(), collect(chain(4), episodes=20, seed=1), held_out=0.0).policy()
    states = pl.DataFrame({"state": [0, 3, 1, 2]})
    write_table(states, tmp_path / "new.csv")
    acted = act_on_table(policy, tmp_path / "new.csv")["action"].to_list()
    assert acted == policy([[0], [3], [1], [2]]).tolist()
    assert set(acted) <= {"left", "right"}
    write_table(pl.DataFrame({"state": ["0", "7", "1.5"]}), tmp_path / "odd.csv")
    with pytest.raises(SpecError, match=r"'state' has invalid codes in 2 row\(s\) \(2, 3\), expected 0 to 4"):
        act_on_table(policy, tmp_path / "odd.csv")


def test_numbers_that_were_logged_from_1_come_back_as_numbers():
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"x": rng.normal(size=90), "arm": rng.integers(1, 5, 90), "r": rng.normal(size=90)})
    log = read_log(table, Columns(observation="x", action="arm", reward="r", terminated=True))
    policy = finish(begin(bc(learning_rate=0.1), log)).policy()
    acted = act_on_table(policy, table, probabilities=True)
    assert acted["action"].dtype.is_integer()
    assert set(acted["action"]) <= {1, 2, 3, 4}
    assert acted.columns[-5:] == ["action", *(f"probability_{code}" for code in (1, 2, 3, 4))]


def test_policies_of_nameless_arrays_read_columns_as_exports_name_them(tmp_path):
    seen = np.arange(8.0).reshape(4, 2) / 8.0
    log = Log.from_arrays(observation=seen, action=[0, 1, 0, 1], reward=None)
    policy = begin(bc(), log, held_out=0.0).policy()
    log.to_parquet(tmp_path / "log.parquet")
    acted = act_on_table(policy, tmp_path / "log.parquet")
    assert acted["policy_action"].to_list() == policy(seen).tolist()
    write_table(pl.DataFrame({"observation_1": seen[:, 1], "observation_0": seen[:, 0]}), tmp_path / "turned.csv")
    assert act_on_table(policy, tmp_path / "turned.csv")["action"].to_list() == policy(seen).tolist()
    write_table(pl.DataFrame({"observation_0": seen[:, 0]}), tmp_path / "narrow.csv")
    with pytest.raises(SpecError, match="has no column 'observation_1'"):
        act_on_table(policy, tmp_path / "narrow.csv")


def test_a_table_is_written_whole_or_not_at_all(frame, tmp_path, monkeypatch):
    for name in ("out.xlsx", "out"):
        with pytest.raises(ConfigError, match=r"expected a path that ends in \.csv or \.parquet"):
            write_table(frame, tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be written: "):
        write_table(frame, tmp_path / "nowhere" / "out.csv")

    def full(self, file, **options):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_csv", full)
    with pytest.raises(ConfigError, match=r"out\.csv cannot be written: No space left on device"):
        write_table(frame, tmp_path / "out.csv")
    assert [*tmp_path.iterdir()] == []


def test_rows_with_unknown_words_can_be_left_out_and_are_told(policy, frame, tmp_path):
    odd = put(frame, "kidneys", {2: "helthy", 5: None})
    write_table(odd, tmp_path / "new.csv")
    acted, skipped = act_on_known(policy, tmp_path / "new.csv")
    assert skipped["row"].to_list() == [2, 5]
    assert skipped["unknown"].to_list() == ["kidneys: helthy", "kidneys: (an empty cell)"]
    assert skipped["id"].cast(pl.Int64).to_list() == [1, 4]
    write_table(frame, tmp_path / "all.csv")
    whole = act_on_table(policy, tmp_path / "all.csv")
    wanted = whole.filter(~pl.col("id").cast(pl.Int64).is_in([1, 4]))
    assert acted["action"].to_list() == wanted["action"].to_list()
    write_table(frame.with_columns(kidneys=pl.lit("x")), tmp_path / "none.csv")
    assert act_on_known(policy, tmp_path / "none.csv")[0] is None


def test_rows_without_a_number_can_be_left_out_and_keep_their_place(policy, frame, tmp_path):
    number = next(leaf for leaf in policy.spec.observation.values() if type(leaf).__name__ == "Vector").names[0]
    odd = put(frame.with_columns(pl.col(number).cast(pl.String)), number, {3: None, 7: "high"})
    odd = put(odd, "kidneys", {7: "helthy"})
    write_table(odd, tmp_path / "new.csv")
    acted, skipped = act_on_known(policy, tmp_path / "new.csv")
    assert skipped["row"].to_list() == [3, 7]
    assert sorted("; ".join(skipped["unknown"]).split("; ")) == sorted(
        [f"{number}: (an empty cell)", f"{number}: high", "kidneys: helthy"]
    )
    assert acted.height == frame.height - 2


def test_words_for_an_empty_cell_are_those_of_the_mapping(policy, log, frame):
    name = log.spec.observation["numeric"].names[0]
    rows = put(frame, name, {2: "?"})
    with pytest.raises(SpecError, match=rf"column '{name}' is '\?' in 1 row\(s\) \(2\).*pass the log's mapping"):
        act_on_table(policy, rows)
    mapping = Columns(observation=[name], action="kidneys", reward=None, na_values=["?"])
    with pytest.raises(SpecError, match=rf"column '{name}' is empty in 1 row\(s\) \(2\)"):
        act_on_table(policy, rows, mapping)
    known, skipped = act_on_known(policy, rows, mapping)
    assert skipped["unknown"].to_list() == [f"{name}: (an empty cell)"]
    assert skipped[name].to_list() == ["?"]  # rows are written as they were
    assert len(known) == log.steps - 1
