"""Labels in few rows are learnt as one, `other`, and stand for labels that the log does not have, everywhere alike."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tidelog import runtime
from tidelog.cli import main
from tidelog.data.inspect import describe_table
from tidelog.data.read import read_log
from tidelog.policies.batch_inference import act_on_known, act_on_table
from tidelog.runtime.observations import unseen_labels
from tidelog.types import Codes, Spec

MAPPING = {"action": "dose", "reward": "score", "observation": ["age", "ward"], "terminated": True}


def decisions() -> pl.DataFrame:
    """Two frequent wards, and eight wards of two or three rows."""
    rng = np.random.default_rng(0)
    ward = np.concatenate([[f"w{row % 8}" for row in range(20)], rng.choice(["north", "south"], 280)])
    age = rng.integers(20, 80, 300)
    return pl.DataFrame({"age": age, "ward": ward, "dose": np.where(age > 50, "low", "high"), "score": rng.random(300)})


NEW = pl.DataFrame({"age": [30, 30, 30, 70], "ward": ["north", "w3", "east", "moon"]})


def test_labels_in_few_rows_become_one_and_that_is_said() -> None:
    log = read_log(decisions(), MAPPING | {"other": 10})
    leaf = log.spec.observation["categorical"]
    assert leaf == Codes((3,), ("ward",), (("north", "other", "south"),), (tuple(f"w{row}" for row in range(8)),))
    codes = np.asarray(log.observation["categorical"])[:, 0]
    assert (codes == 1).sum() == 20
    assert [one.found for one in log.report.notes if one.check == "rare labels"] == [
        "8 of 10 labels in fewer than 10 rows each, 20 rows together, are joined to 'other': 'w0', 'w1', 'w2', ..."
    ]
    assert Spec.from_json(log.spec.to_json()) == log.spec
    for joined in (None, "w0", ["w0"], [["w0"], ["w1"]], [[1]]):
        damaged = log.spec.to_json()
        damaged["observation"]["categorical"]["joined"] = joined
        with pytest.raises(tl.SpecError):
            Spec.from_json(damaged)
    assert read_log(decisions(), MAPPING).spec.to_json() == read_log(decisions(), MAPPING | {"other": 2}).spec.to_json()
    assert "joined" not in read_log(decisions(), MAPPING).spec.to_json()["observation"]["categorical"]


def test_a_label_other_of_the_log_and_next_observations_join_them() -> None:
    """Labels that only next observations have are rare; empty cells are none."""
    table = pl.DataFrame({
        "ward": [*["north", "other"] * 18, "x", "y", "x", None], "next": ["north"] * 39 + ["z"],
        "dose": ["a", "b"] * 20, "score": np.arange(40.0),
    })  # fmt: skip
    mapping = {"action": "dose", "reward": "score", "observation": ["ward"], "next_observation": ["next"],
               "other": {"ward": 5}}  # fmt: skip
    log = read_log(table, mapping | {"missing": "mean+flag"})
    leaf = log.spec.observation["categorical"]
    assert (leaf.vocabularies, leaf.rare_labels) == ((("", "north", "other"),), (("x", "y", "z"),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"other": 2.5}, "expected a whole number of rows"),
        ({"other": {"wards": 5}}, "did you mean 'ward'"),
        ({"other": {"ward": -1}}, "expected a whole number of rows"),
        ({"other": {"ward": 5}, "vocabularies": {"ward": ["north"]}}, "other and vocabularies both name 'ward'"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(change: dict, message: str) -> None:
    with pytest.raises(tl.ConfigError, match=message):
        tl.Columns.from_mapping(MAPPING | change)


def test_the_rule_is_proposed_where_it_can_be_learnt() -> None:
    described = describe_table(decisions())
    assert described.proposed is not None
    assert dict(described.proposed.other) == {"ward": 10}
    assert 'other = { "ward" = 10 }' in described.toml
    assert any(
        note.startswith("8 of 10 labels of 'ward' (20 rows) are in fewer than 10 rows") for note in described.notes
    )
    few = decisions().filter(~pl.col("ward").str.starts_with("w") | (pl.col("ward") == "w1"))  # one label of 3 rows
    assert describe_table(few).proposed.other == 0  # too few to learn from
    assert (
        describe_table(decisions().head(20)).proposed is None or not describe_table(decisions().head(20)).proposed.other
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy with the label `other`, one without, and new rows."""
    folder = tmp_path_factory.mktemp("unseen")
    for name, mapping in {"policy": MAPPING | {"other": 10}, "strict": MAPPING}.items():
        log = read_log(decisions(), mapping)
        policy = tl.fit(tl.BC(hidden=(8,), learning_rate=0.01), log, steps=60).policy()
        tl.export(policy, folder / name)
    NEW.write_csv(folder / "new.csv")
    return folder


def test_labels_that_the_log_does_not_have_are_those_in_few_rows_in_every_runtime(saved: Path) -> None:
    explicit = NEW.with_columns(ward=pl.Series(["north", "other", "other", "other"]))
    for load in (tl.load_policy, runtime.load):
        policy = load(saved / "policy")
        chances = policy.probabilities(NEW)
        np.testing.assert_array_equal(chances, policy.probabilities(explicit))
        assert not np.array_equal(chances[0], chances[1])
        assert act_on_table(policy, NEW)["action"].to_list() == act_on_table(policy, explicit)["action"].to_list()
        by_leaf = {"numeric": NEW.select("age").to_numpy(), "categorical": NEW.select("ward").to_numpy()}
        np.testing.assert_array_equal(policy.probabilities(by_leaf), chances)
        assert unseen_labels(by_leaf, policy.spec) == unseen_labels(NEW.to_dict(), policy.spec) == {"ward": 2}
        with pytest.raises(tl.SpecError, match="'ward' is '' in row 1"):
            policy.act(NEW.with_columns(ward=pl.Series(["north", None, "east", "moon"])))
    with pytest.raises(tl.SpecError, match="'ward' is 'east' in row 2, unknown in the log"):
        runtime.load(saved / "strict").act(NEW)


def test_rows_are_answered_skipped_or_refused(saved: Path) -> None:
    policy = runtime.load(saved / "policy")
    with pytest.raises(
        tl.SpecError, match="2 rows have values that the policy's log does not have, such as ward: east"
    ):
        act_on_table(policy, NEW, unseen="fail")
    assert act_on_table(policy, NEW.head(2), unseen="fail").height == 2  # a label in few rows is one of the log's
    known, skipped = act_on_known(policy, NEW, unseen="skip")
    assert known is not None
    assert (known["ward"].to_list(), skipped["row"].to_list()) == (["north", "w3"], [3, 4])
    known, skipped = act_on_known(policy, NEW)
    assert known is not None
    assert (known.height, skipped.height) == (4, 0)
    known, skipped = act_on_known(runtime.load(saved / "strict"), NEW)
    assert known is not None
    assert (known.height, skipped["unknown"].to_list()) == (2, ["ward: east", "ward: moon"])


def test_the_command_says_how_many(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["act", str(saved / "policy"), "--data", str(saved / "new.csv"), "--out", str(tmp_path / "out.csv")]
    assert main(words) == 0
    assert "labels that the log of the policy does not have count as 'other': 2 of 'ward'" in capsys.readouterr().out
    assert pl.read_csv(tmp_path / "out.csv").height == 4
    assert main([*words, "--overwrite", "--unseen", "skip"]) == 0
    shown = capsys.readouterr().out
    assert "note: 2 rows skipped, such as row 3: ward: east" in shown
    assert "count as 'other'" not in shown
    assert pl.read_csv(tmp_path / "out.csv")["ward"].to_list() == ["north", "w3"]
    assert main([*words, "--overwrite", "--unseen", "skip", "--skip-unknown", str(tmp_path / "left.csv")]) == 0
    assert pl.read_csv(tmp_path / "left.csv")["unknown"].to_list() == ["ward: east", "ward: moon"]
    (tmp_path / "out.csv").unlink()
    assert main([*words, "--unseen", "fail"]) == 2
    assert "such as ward: east. fix: correct the cells, or drop --unseen fail" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()
    words[1] = str(saved / "strict")
    assert main(words) == 2
    assert "--unseen skip leaves such rows out" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--unseen", "skip"]) == 0
    for flags in (["--unseen", "fail", "--skip-unknown", "x.csv"], ["--unseen", "skip", "--probabilities"]):
        assert main([*words, *flags, "--overwrite"]) == 2
        assert "are both set. fix: set only one of them" in capsys.readouterr().err
