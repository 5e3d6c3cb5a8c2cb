"""Values that are filled when the log is read are also filled when the policy acts; pictures are passed whole."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tidelog import SpecError
from tidelog.policies.batch_inference import act_on_table
from tidelog.runtime.observations import read_observation


@pytest.fixture(scope="module")
def policy():
    generator = np.random.default_rng(0)
    age = [None if i % 5 == 0 else float(v) for i, v in enumerate(generator.normal(50, 10, 60))]
    frame = pl.DataFrame({"age": age, "dose": generator.normal(size=60), "act": [i % 2 for i in range(60)]})
    log = tl.read_log(frame, {"observation": ["age", "dose"], "action": "act", "missing": "mean+flag"})
    return tl.fit(tl.BC(hidden=(8,), batch_size=8), log, 3).policy()


def test_a_missing_value_becomes_the_mean_and_its_flag(policy):
    leaf = policy.spec.observation["numeric"]
    assert leaf.names == ("age", "dose", "age missing")
    (mean,) = (value for name, value in leaf.fills if name == "age")
    found = read_observation({"age": [np.nan, 61.0], "dose": [1.0, 2.0]}, policy.spec).leaves["numeric"]
    assert found[0] == pytest.approx([mean, 1.0, 1.0])
    assert found[1] == pytest.approx([61.0, 2.0, 0.0])
    one = policy.probabilities({"age": np.nan, "dose": 1.0})
    assert one == pytest.approx(policy.probabilities({"numeric": np.asarray([mean, 1.0, 1.0], np.float32)}))


def test_a_value_that_no_rule_fills_is_refused_by_name(policy):
    with pytest.raises(SpecError, match="'dose' is missing or infinite in row 1"):
        policy({"age": [1.0, 2.0], "dose": [1.0, np.nan]})


def test_empty_cells_of_a_table_are_filled_where_there_is_a_rule(policy, tmp_path):
    (tmp_path / "new.csv").write_text("age,dose\n,1.0\n61,2.0\n")
    acted = act_on_table(policy, tmp_path / "new.csv")["action"].to_list()
    assert acted == policy({"age": [np.nan, 61.0], "dose": [1.0, 2.0]}).tolist()
    (tmp_path / "bad.csv").write_text("age,dose\nold,1.0\n61,\n")
    with pytest.raises(SpecError, match=r"column '(age|dose)' is .* in 1 row\(s\) .*, expected a number"):
        act_on_table(policy, tmp_path / "bad.csv")


@pytest.mark.full
def test_pictures_are_bytes_of_one_shape():
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (30, 9, 8, 3)).astype(np.uint8)
    log = tl.Log.from_arrays(observation={"eye": pictures}, action=np.arange(30) % 3, reward=None)
    policy = tl.fit(tl.BC(hidden=(8,), batch_size=8), log, 2).policy()
    assert policy({"eye": pictures[:4]}).shape == (4,)
    assert policy(pictures[0]).shape == ()
    with pytest.raises(SpecError, match="uint8"):
        policy({"eye": pictures[:4] / 255.0})
    with pytest.raises(SpecError, match=r"\[9, 8, 3\]"):
        policy({"eye": pictures[:4].transpose(0, 3, 1, 2)})


def test_empty_words_and_masks_are_not_guessed(tmp_path):
    frame = pl.DataFrame({"w": ["p", None, "q", "p"], "act": [0, 1, 0, 1], "m0": [1, 1, 1, 1], "m1": [1, 1, 1, 1]})
    columns = {"observation": "w", "action": "act", "missing": "mean+flag", "action_mask": ["m0", "m1"]}
    policy = tl.fit(tl.BC(hidden=(8,), batch_size=4), tl.read_log(frame, columns), 3).policy()
    assert policy({"w": None}) == policy({"w": ""}) == policy({"w": float("nan")})
    frame.drop("act").write_csv(tmp_path / "new.csv")
    with pytest.raises(SpecError, match="the log has action masks, but this table has none"):
        act_on_table(policy, tmp_path / "new.csv")
    (tmp_path / "m.toml").write_text('observation = "w"\naction = "act"\naction_mask = ["m0", "m1"]\n')
    assert act_on_table(policy, tmp_path / "new.csv", tmp_path / "m.toml").height == 4
    with pytest.raises(SpecError, match="mask has other numbers than 0 and 1"):
        policy({"w": "p"}, mask=[np.nan, 1.0])
