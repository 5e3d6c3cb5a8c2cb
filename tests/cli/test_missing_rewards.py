"""A shop's log of e-mails: purchases that come within 30 days, and rewards that were lost, as a stranger judges it."""

import numpy as np
import polars as pl
import pytest

ROWS = 2_000
MAPPING = """observation = ["segment"]
action = "mail"
reward = "paid"
terminated = true
time = "sent"
propensity = 0.5
"""
SMALL = ["--hidden", "8", "--batch-size", "64", "--steps", "60", "--preset", "none", "--held-out", "0.5"]


@pytest.fixture
def shop(tmp_path):
    generator = np.random.default_rng(5)
    segment, mail = generator.choice(["new", "old"], ROWS), generator.random(ROWS) < 0.5
    bought = generator.random(ROWS) < np.where(mail & (segment == "new"), 0.6, 0.2)
    lost = generator.random(ROWS) < np.where(mail, 0.3, 0.05)
    day = np.datetime64("2026-01-01") + (np.arange(ROWS) // 10).astype("timedelta64[D]")
    paid = [None if gone else 10.0 * one for gone, one in zip(lost, bought, strict=True)]
    table = {"segment": segment, "mail": np.where(mail, "send", "none"), "sent": day.astype(str), "paid": paid}
    pl.DataFrame(table).write_csv(tmp_path / "shop.csv")
    return tmp_path


def test_a_log_with_lost_rewards_is_checked_learnt_from_and_judged(shop, tidelog):
    files = ["--data", str(shop / "shop.csv"), "--columns", str(shop / "c.toml")]
    (shop / "c.toml").write_text(MAPPING)
    refused = tidelog("log", "check", *files)
    assert refused.code == 2
    assert '"unknown" if what they earned' in refused.said
    (shop / "c.toml").write_text(MAPPING + 'missing_reward = "unknown"\nreward_horizon = "30d"\n')
    checked = tidelog("log", "check", *files)
    assert checked.code == 0
    assert "300 rows of 2,000 left out: younger than 30d" in checked.said
    assert "the action predicts which ones" in checked.said
    assert tidelog("log", "inspect", *files).code == 0
    trained = tidelog("train", "iql", *files, *SMALL, "--out", str(shop / "run"))
    assert trained.code == 0, trained.err
    assert "of 1,700 episodes have an unknown reward: training leaves them out" in trained.said
    judged = tidelog("judge", str(shop / "run"), *files, "--mode", "--details", "--model", "tabular")
    assert judged.code == 0, judged.err
    assert "rewards are unknown" in judged.said
    assert "after 'send'" in judged.said
