"""The loop that PPG's page shows and the schedule of its phases are the same."""

import textwrap

import pytest

import tidelog as tl
from tidelog.algorithms import ppg
from tidelog.training.loop import Position, RoundSchedule

SIZES = {"num_envs": 4, "rollout_steps": 8, "minibatches": 2, "policy_iterations": 3, "auxiliary_minibatch": 2}
SETTINGS = {
    "epochs apart": {"policy_epochs": 2, "value_epochs": 3, "auxiliary_epochs": 1},
    "joint epochs": {"policy_epochs": 2, "value_epochs": 2, "auxiliary_epochs": 2},
    "no auxiliary phase": {"policy_epochs": 1, "value_epochs": 1, "auxiliary_epochs": 0},
}


def as_shown(algorithm, rounds):
    """Run the loop of the page: the names of what it does, with the number of decisions or updates, in order."""
    text = ppg.__doc__[ppg.__doc__.index("    for round in rounds:") : ppg.__doc__.index("\nBefore the first update")]
    done = []

    def update(name):
        if done and done[-1][0] == name:
            done[-1][1] += 1
        else:
            done.append([name, 1])

    names = {name: getattr(algorithm, name) for name in ppg.PPG.__dataclass_fields__}
    names |= {"rounds": range(rounds), "collect": lambda decisions: done.append(["collect", decisions])}
    names |= {f"{name}_step": lambda name=name: update(name) for name in ("value", "policy", "auxiliary")}
    exec(compile(textwrap.dedent(text), "the loop of ppg.py", "exec"), names)
    return done


def as_scheduled(algorithm, rounds):
    """Return the same from the schedule of the training loop."""
    collection, phases = algorithm.collection(), algorithm.phases()
    size = collection.num_envs * collection.steps
    steps, _, _ = RoundSchedule(algorithm, size, 0).rows(Position(), 10**9, rounds * size, rounds)
    done = []
    for step in steps:
        done += [["collect", size]] if step.collect else []
        done += [[phase.name, count] for phase, count in zip(phases, step.updates, strict=True) if count]
    return done


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_loop_of_the_page_is_the_schedule(settings):
    algorithm = tl.PPG(**SIZES, **settings)
    shown = as_shown(algorithm, 7)
    assert len(shown) >= 14
    assert shown == as_scheduled(algorithm, 7)
