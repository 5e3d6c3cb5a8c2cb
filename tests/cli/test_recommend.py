"""From a table of clicks to a table of lists by commands alone, and what is typed wrong on the way."""

import shutil
from pathlib import Path

import polars as pl
import pytest

import tidelog.runtime
from tests.algorithms.recommenders import people
from tests.data.clicks import clicks
from tests.runtime.cases import listing
from tidelog.cli import main

ROLES = ["--user", "u", "--item", "i", "--time", "t", "--event", "kind", "--reward", "click=0.2", "buy=1"]
TINY = ["--size", "8", "--history", "6", "--targets", "3", "--batch-size", "8", "--hidden", "8", "--candidates", "4"]


def said(capsys):
    found = capsys.readouterr()
    return " ".join((found.out + found.err).replace("│", " ").split())


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A folder with a table, and a policy for its items that has learnt nothing."""
    folder = tmp_path_factory.mktemp("shop")
    clicks(users=16).write_csv(folder / "clicks.csv")
    listing("lists, mean").save(folder / "policy")
    return folder


@pytest.fixture(scope="module")
def run(shop) -> Path:
    """A run that has learnt from the table a little."""
    words = ["train", "recommender-bcq", "--data", str(shop / "clicks.csv"), *ROLES, *TINY, "--pretrain", "2"]
    assert main([*words, "--steps", "4", "--every", "4", "--held-out", "0.3", "--out", str(shop / "run")]) == 0
    return shop / "run"


@pytest.mark.sample("policy")
@pytest.mark.parametrize("source", ["policy", "run"])
def test_lists_for_every_user(source, shop, tmp_path, capsys, request):
    path = request.getfixturevalue("run") if source == "run" else shop / "policy"
    words = ["recommend", str(path), "--data", str(shop / "clicks.csv"), *ROLES[:8], "--k", "2"]
    assert main([*words, "--out", str(tmp_path / "lists.csv")]) == 0
    assert "lists of 2 items for 16 users" in said(capsys)
    lists = pl.read_csv(tmp_path / "lists.csv")
    assert lists.columns == ["u", "rank", "i", "score"]
    assert lists.height == 32
    taken = set(clicks(users=16).select("u", "i").iter_rows())
    assert not taken & set(lists.select("u", "i").iter_rows())
    (tmp_path / "few.txt").write_text("i1\ni2\ni3\n")
    again = [*words, "--no-exclude-seen", "--candidates", str(tmp_path / "few.txt"), "--out", str(tmp_path / "few.csv")]
    assert main(again) == 0
    assert set(pl.read_csv(tmp_path / "few.csv")["i"]) <= {"i1", "i2", "i3"}


@pytest.mark.full
def test_a_table_of_users_goes_into_training_and_lists(tmp_path, capsys):
    clicks(users=16).write_csv(tmp_path / "clicks.csv")
    people().write_csv(tmp_path / "users.csv")
    words = ["train", "recommender-bcq", "--data", str(tmp_path / "clicks.csv"), *ROLES, *TINY, "--pretrain", "2"]
    words += ["--user-features", str(tmp_path / "users.csv"), "--learning-rate", "0.1"]
    assert main([*words, "--steps", "4", "--every", "2", "--held-out", "0.3", "--out", str(tmp_path / "run")]) == 0
    ask = ["recommend", str(tmp_path / "run"), "--data", str(tmp_path / "clicks.csv"), *ROLES[:8], "--k", "2"]
    told = [*ask, "--user-features", str(tmp_path / "users.csv")]
    assert main([*told, "--out", str(tmp_path / "told.csv")]) == 0
    assert main([*ask, "--out", str(tmp_path / "untold.csv")]) == 0
    one, two = (pl.read_csv(tmp_path / f"{name}.csv")["score"] for name in ("told", "untold"))
    assert (one - two).abs().max() > 1e-4
    capsys.readouterr()
    broken = {
        "few": (people().head(3), "has no row for 13 users (u3, u4, u5, u6, u7, ...)"),
        "twice": (pl.concat([people(), people().head(1)]), "has 17 rows for 16 users, expected one per user"),
        "lacking": (people().drop("plan"), "has no column 'plan'"),
        "text": (people().with_columns(age=pl.lit("old")), "row 1: 'age' is 'old', expected a number"),
        "word": (people().with_columns(plan=pl.lit("gold")), "has 'gold', unknown in the log"),
    }
    for name, (frame, message) in broken.items():
        frame.write_csv(tmp_path / f"{name}.csv")
        assert main([*ask, "--user-features", str(tmp_path / f"{name}.csv"), "--out", str(tmp_path / "no.csv")]) == 2
        assert message in said(capsys), name
    assert not (tmp_path / "no.csv").exists()
    skip = [*ask, "--user-features", str(tmp_path / "few.csv"), "--unknown", "skip", "--out", str(tmp_path / "s.csv")]
    assert main(skip) == 0


@pytest.mark.full
def test_resuming_says_what_to_do_next_with_the_columns_of_the_log(run, capsys, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    assert main(["resume", str(tmp_path / "run"), "--checkpoint", "0"]) == 0
    assert "--data HISTORIES.csv --user u --item i --time t --out lists.csv" in said(capsys)


@pytest.mark.full
def test_a_run_is_exported_and_gives_the_same_lists_without_jax(run, tmp_path, capsys):
    out = tmp_path / "policy"
    assert main(["export", str(run), "--no-onnx", "--out", str(out)]) == 0
    told = said(capsys)
    assert "numpy, random" in told
    assert "numpy, logged" in told
    again = tidelog.load_policy(out).recommend([["i1", "i2"]], 3)
    assert tidelog.runtime.load(out).recommend([["i1", "i2"]], 3).items.tolist() == again.items.tolist()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--k", "30"], "k = 30, but history 0 has only"),
        (["--user", "who"], "has no column 'who'"),
        (["--candidates", "absent.txt"], "absent.txt cannot be read"),
    ],
)
def test_what_is_typed_wrong_writes_nothing(shop, tmp_path, capsys, words, expected):
    flags = ["recommend", str(shop / "policy"), "--data", str(shop / "clicks.csv"), *ROLES[:6], *words]
    assert main([*flags, "--out", str(tmp_path / "lists.csv")]) == 2
    assert expected in said(capsys)
    assert not (tmp_path / "lists.csv").exists()


def test_an_unknown_item_is_named_or_passed_over(shop, tmp_path, capsys):
    pl.DataFrame({"u": ["a"], "i": ["i11"]}).write_csv(tmp_path / "new.csv")
    words = ["recommend", str(shop / "policy"), "--data", str(tmp_path / "new.csv"), "--user", "u", "--item", "i"]
    words += ["--k", "3", "--out", str(tmp_path / "lists.csv")]
    assert main(words) == 2
    assert "history 0 has the unknown item 'i11'" in said(capsys)
    assert main([*words, "--unknown", "skip"]) == 0


def test_a_ranking_policy_does_not_act_on_rows(shop, tmp_path, capsys):
    words = ["act", str(shop / "policy"), "--data", str(shop / "clicks.csv"), "--out", str(tmp_path / "a.csv")]
    assert main(words) == 2
    assert "fix: use tidelog recommend" in said(capsys)


def test_inspect_and_validate_understand_interactions(shop, tmp_path, capsys):
    source = str(shop / "clicks.csv")
    assert main(["data", "inspect", source, *ROLES, "--session-gap", "1000"]) == 0
    shown = said(capsys)
    assert "events of 16 users" in shown
    assert "no pause ends a session" in shown
    assert main(["data", "validate", source, *ROLES]) == 0
    broken = pl.read_csv(source).with_columns(t=pl.lit("noon"))
    broken.write_csv(tmp_path / "broken.csv")
    flags = ["data", "validate", str(tmp_path / "broken.csv"), *ROLES, "--quarantine", str(tmp_path / "aside.csv")]
    assert main(flags) == 2
    assert "unreadable cell in 't'" in said(capsys)
    assert pl.read_csv(tmp_path / "aside.csv").height == broken.height


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--user", "u"], "needs --user, --item and --time. fix: add --item and --time"),
        ([*ROLES[:6], "--reward", "click=much", "--event", "kind"], "--reward click=much: expected one column"),
        (
            [*ROLES[:6], "--columns", "columns.toml"],
            "--columns is not for interactions (--user, --item). fix: drop --columns",
        ),
    ],
)
def test_flags_that_lack_or_contradict_are_said(shop, capsys, words, expected):
    assert main(["data", "validate", str(shop / "clicks.csv"), *words]) == 2
    assert expected in said(capsys)


def test_a_table_without_flags_is_refused_by_train(shop, tmp_path, capsys):
    words = ["train", "recommender-bcq", "--data", str(shop / "clicks.csv"), "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "--user U --item I --time T" in said(capsys)
    assert not (tmp_path / "run").exists()
