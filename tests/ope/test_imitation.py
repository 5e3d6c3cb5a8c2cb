"""How well a policy imitates a log: golden numbers, and what the commands say about a log without rewards."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.report.pages import Page
from tidelog.cli import main
from tidelog.ope.policies import Imitation


def log_of(action, episode):
    rows = {"observation": np.zeros((len(action), 1), np.float32), "reward": np.zeros(len(action), np.float32)}
    return tl.Log.from_arrays(**rows, action=np.asarray(action), episode=np.asarray(episode))


def test_the_shares_and_their_interval_by_hand():
    """Right at 4 of 5 steps; always action 1 at 3 of 5. What the policy has more is (1, 0, 0) and (0, 0).

    Mean 1/5. By episode, minus the mean at each step: 1 - 3/5 = .4 and 0 - 2/5 = -.4; the standard error is
    sqrt(2/1 (.16 + .16)) / 5 = .16, and the 97.5% quantile of Student's t with one degree of freedom is 12.706.
    """
    log = log_of([0, 1, 1, 1, 0], [0, 0, 0, 1, 1])
    found = Imitation.of(log, np.asarray([0, 1, 1, 1, 1]), log.starts)
    assert found.policy.tolist() == [1, 1, 1, 1, 0]
    assert found.constant.tolist() == [0, 1, 1, 1, 0]
    assert found.difference == pytest.approx((0.2, 0.2 - 12.706 * 0.16, 0.2 + 12.706 * 0.16), abs=1e-4)
    assert found.sentence == (
        "chooses the logged action at 80.0% of the steps, the most common action (1) is right at 60.0%: a difference "
        "of +20 points (95% interval -183 to +223)"
    )


def test_several_choices_count_together_and_one_episode_has_no_interval():
    log = log_of([[0, 1], [0, 1], [1, 1]], [0, 0, 0])
    found = Imitation.of(log, np.asarray([[0, 1], [0, 0], [1, 1]]), log.starts)
    assert found.policy.tolist() == [1, 0, 1]
    assert found.sentence.endswith("the most common action ([0 1]) is right at 66.7%: a difference of 0 points")


def test_continuous_actions_are_compared_by_their_distance():
    """The logged actions are (0, 0) and (3, 4), their mean is at a distance of 2.5 from both."""
    log = log_of(np.asarray([[0, 0], [3, 4]], np.float32), [0, 1])
    found = Imitation.of(log, np.asarray([[0, 1], [3, 4]], np.float32), log.starts)
    assert found.policy.tolist() == [1, 0]
    assert found.constant.tolist() == [2.5, 2.5]
    assert "has a mean distance to the logged actions of 0.5, the mean action one of 2.5: a difference of -2 " in (
        found.sentence
    )


@pytest.fixture(scope="module")
def clones(tmp_path_factory):
    """A run on a log without rewards, whose actions are 'stay' for x < 0.75 and 'go' elsewhere."""
    folder = tmp_path_factory.mktemp("clones")
    x = np.random.default_rng(0).random(300)
    table = pl.DataFrame({"who": np.repeat(np.arange(60), 5), "x": x, "did": np.where(x < 0.75, "stay", "go")})
    table.write_csv(folder / "log.csv")
    (folder / "columns.toml").write_text('episode = "who"\nobservation = ["x"]\naction = "did"\n')
    return folder


def test_a_log_without_rewards_is_not_sent_in_a_circle(clones, monkeypatch, capsys):
    monkeypatch.chdir(clones)
    words = ["train", "bc", "--data", "log.csv", "--columns", "columns.toml", "--hidden", "16", "--steps", "300"]
    assert main([*words, "--learning-rate", "0.01", "--out", "run"]) == 0
    trained = capsys.readouterr().out
    said = "bc chooses the logged action at "
    assert said in trained
    assert "the most common action (stay) is right at " in trained
    assert "tidelog judge" not in trained
    assert main(["judge", "run"]) == 2
    judged = capsys.readouterr().err
    assert "the log has no rewards, so no policy can be judged" in " ".join(judged.split())
    assert trained.split(said)[1].split("\n")[0] in judged
    assert "tidelog report" not in judged
    assert main(["report", "run"]) == 0
    page = " ".join("".join(Page((clones / "report.html").read_text()).said).split())
    assert "The log has no rewards, so no policy can be judged" in page
    assert trained.split("bc chooses the ")[1].split("\n")[0] in page
    assert "tidelog judge" not in page
    shown = trained.split(said)[1]
    assert float(shown.split("%")[0]) > 90.0
    assert not list((clones / "run").glob("verdicts/*"))


def test_inspect_does_not_promise_a_judgement_without_rewards(clones, monkeypatch, capsys):
    monkeypatch.chdir(clones)
    assert main(["log", "inspect", "--data", "log.csv"]) == 0
    assert "to judge the policy on" not in capsys.readouterr().out
