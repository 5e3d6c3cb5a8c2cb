"""The advice of an unsupported verdict can be followed, and does not ask for what is there already."""

import dataclasses

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import QUICK, Told, best_treatments, treated
from tidelog.ope.verdict.checks import has_density
from tidelog.ope.verdict.judge import judge

ASKED = "record the probability"


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "estimated"])
def test_only_unrecorded_probabilities_are_asked_for(recorded):
    """A policy that the log hardly shows: varied decisions help, and probabilities only if they are missing."""
    chances = np.full(best_treatments().shape, 0.002)
    chances[:, 0] = 1.0 - 5 * 0.002
    log = treated(chances, 300, **({} if recorded else {"propensity": None}))
    found = judge(Told(best_treatments()), log, model="tabular", limits=QUICK, ledger=False)
    assert found.decision == "unsupported"
    assert "let the logger vary its decisions more" in found.paragraph
    assert (ASKED in found.paragraph) is not recorded


def dial(seed):
    """A log of one continuous action, with its densities."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-0.9, 0.9, (600, 1)).astype(np.float32)
    return tl.Log.from_arrays(
        observation=rng.standard_normal((600, 2)), action=action, reward=-np.square(action[:, 0]), terminated=True,
        bounds=(-1.0, 1.0), propensity=np.full(600, 1 / 1.8),
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("head", ["deterministic", "gaussian"])
def test_sampling_is_only_advised_where_it_can_be_followed(head):
    box = dial(1)
    policy = tl.fit(tl.BC(hidden=(8,), actor_head=head), dial(0), 5, progress=False).policy()
    assert has_density(policy, box) is (head == "gaussian")
    judged = {"limits": QUICK, "ledger": False, "progress": False}
    plain = judge(policy, box, **judged)
    assert plain.decision == "unsupported"
    assert "--bandwidth 0.2" in plain.paragraph
    assert ("--sample" in plain.paragraph) is (head == "gaussian")
    narrow = dataclasses.replace(QUICK, effective_episodes=590.0)
    followed = judge(policy, box, bandwidth=0.2, **{**judged, "limits": narrow})
    assert all("has no probability" not in reason for reason in followed.reasons)
    assert followed.decision == "unsupported"
    assert ("--sample" in followed.paragraph) is (head == "gaussian")


def test_what_was_learnt_from_is_refused_before_anything_is_fitted():
    """The judged episodes were learnt from: no model could change the verdict."""
    box = dial(0)
    policy = tl.fit(tl.BC(hidden=(8,)), box, 5, progress=False).policy()
    told = []
    found = judge(policy, box, ledger=False, bandwidth=0.2, progress=lambda what, share: told.append(what))
    assert found.decision == "unsupported"
    assert "learnt from" in found.reasons[0]
    assert told == []
    assert len(found.estimates) == 0
