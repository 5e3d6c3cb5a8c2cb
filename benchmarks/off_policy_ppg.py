"""Off-policy PPG against PPG on CartPole, and what it matters that targets are never stored.

`python -m benchmarks off_policy_ppg cartpole | stale`. A seed has solved CartPole at its first report at which 20
deterministic episodes return 475 on average; reports are 2,048 decisions apart for all. Settings are the presets; that
of off-policy PPG was chosen on seeds 100 to 102, which are not reported.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from tidelog.algorithms.contract import Collection, Feedback, Phase, StoreSpec
from tidelog.algorithms.hyperparameters import hyperparameters
from tidelog.algorithms.off_policy_ppg import (
    Drawn,
    _auxiliary_updates,
    _policy_updates,
    auxiliary_losses,
    averaged,
    joint_loss,
    losses,
    restarted,
)
from tidelog.algorithms.ppg_common import (
    apply_in_blocks,
    auxiliary_loss,
    gradient_update,
    kl_after,
    record_old_policy,
    scale_rewards,
    standardise,
)
from tidelog.algorithms.sampling import Sampler
from tidelog.algorithms.segments import Epochs, LivePasses, LiveUniform, Whole
from tidelog.losses.td import advantages

ENV, SEEDS, EPISODES, SOLVED = "jax:CartPole-v1", [0, 1, 2, 3, 4], 20, 475.0
EVERY, STEPS = 2_048, 61_440
COMMAND = "python -m benchmarks off_policy_ppg"


def played(algorithm: tl.PPG | tl.OffPolicyPPG, steps: int = STEPS) -> dict:
    """Deterministic returns at every report, and the decisions at which each seed had solved the task."""
    run = tl.learn(algorithm, ENV, steps, SEEDS, eval_every=EVERY, evaluate={ENV: EPISODES})
    curves = {s: [(r["decisions"], r[f"play/{ENV}"]) for r in run.metrics if r["seed"] == s] for s in SEEDS}
    solved = [next((at for at, value_of in curve if value_of >= SOLVED), None) for curve in curves.values()]
    value_of = [float(np.mean([value_of for _, value_of in curve])) for curve in curves.values()]
    found = {
        "curves": curves,
        "solved_at": solved,
        "mean_return": value_of,
        "mean_return_interval": seed_interval(value_of),
    }
    return found | ({} if None in solved else {"solved_interval": seed_interval(solved)})


def cartpole() -> dict:
    """Both with their classic-control presets."""
    found = {
        "ppg": played(tl.PPG.preset("classic-control")),
        "off_policy_ppg": played(tl.OffPolicyPPG.preset("classic-control")),
    }
    content = {"env": ENV, "steps": STEPS, "every": EVERY, "episodes": EPISODES, "solved": SOLVED, **found}
    saved = [a - b for a, b in zip(found["ppg"]["solved_at"], found["off_policy_ppg"]["solved_at"], strict=True)]
    content |= {"saved": saved, "saved_interval": seed_interval(saved)}
    keep("off_policy_ppg_cartpole", f"{COMMAND} cartpole", content)
    return {name: f["solved_at"] for name, f in found.items()} | {"saved": content["saved_interval"]}


# The published way: advantages and targets of the collecting networks, stored with the segments.


def estimate(h, state, columns):
    """Advantages and targets [C, T] of a fresh rollout by the value network that stood when it was played."""
    state, reward = scale_rewards(h, state, columns)
    value, following = (apply_in_blocks(state.network.value_of, columns[name]) for name in ("observation", "following"))
    flags = columns["terminated"], columns["truncated"], columns["valid"]
    advantage = advantages(reward, value, following, *flags, h.discount, h.gae_lambda)
    return state, {"advantage": advantage, "target": value + advantage, "value": value}


def stored_step(h, state, batch):
    """The update of off-policy PPG with what the segments hold."""
    data = batch["policy"].data
    proximal = state.proximal.network.policy(data["observation"]).log_probability(data["action"])
    data |= {"log_proximal": proximal - data["log_probability"]}
    data |= {"advantage": standardise(data["advantage"], data["valid"])}
    drawn = Drawn(batch["policy"]._replace(data=data), batch["value"])
    state, feedback = gradient_update(h, state, drawn, joint_loss, "policy", h.learning_rate)
    return state._replace(proximal=averaged(state.proximal, state.network, h.proximal_decay)), feedback


def stored_auxiliary_step(h, state, batch):
    """The auxiliary update of off-policy PPG with what the segments hold."""
    state, feedback = gradient_update(h, state, batch, auxiliary_loss, "auxiliary", h.auxiliary_learning_rate)
    return state._replace(proximal=restarted(state.network)), feedback


@hyperparameters
class Stored(tl.OffPolicyPPG):
    """Off-policy PPG, but for where advantages and targets come from; one store serves policy and value."""

    def collection(self):
        return Collection(self.num_envs, self.rollout_steps, ("fresh",))

    def stores(self, spec):
        found = super().stores(spec)["policy"]
        estimated = (*found.columns, "advantage", "target", "value")
        return {"fresh": StoreSpec(found.columns, self.num_envs), "policy": replace(found, columns=estimated)}

    def phases(self):
        fresh = Sampler("fresh", self.num_envs, Whole(), Epochs())
        one = Sampler("policy", self.minibatch, Whole(), LiveUniform())
        again = Sampler("policy", self.auxiliary_minibatch, Whole(), LivePasses())
        return (
            Phase("store", fresh, _nothing, losses, lambda h, round: 1, estimate, into="policy"),
            Phase("policy", {"policy": one, "value": one}, stored_step, losses, _policy_updates),
            Phase(
                "auxiliary",
                again,
                stored_auxiliary_step,
                auxiliary_losses,
                _auxiliary_updates,
                record_old_policy,
                kl_after,
            ),
        )


def _nothing(h, state, batch):
    return state, Feedback({})


def stale() -> dict:
    """Stored against recomputed over a store of 32 collections that lets segments live until they are replaced."""
    changes = {"policy_capacity": 256, "value_capacity": 256, "policy_max_use": 10_000, "value_max_use": 10_000}
    settings = tl.OffPolicyPPG.presets["classic-control"] | changes
    found = {
        "recomputed": played(tl.OffPolicyPPG(**settings), STEPS // 2),
        "stored": played(Stored(**settings), STEPS // 2),
    }
    content = {"env": ENV, "steps": STEPS // 2, "every": EVERY, "episodes": EPISODES, "changes": changes, **found}
    gained = [a - b for a, b in zip(*(f["mean_return"] for f in found.values()), strict=True)]
    content |= {"gained": gained, "gained_interval": seed_interval(gained)}
    keep("off_policy_ppg_stale", f"{COMMAND} stale", content)
    return {name: (f["solved_at"], f["mean_return_interval"]) for name, f in found.items()} | {
        "gained": content["gained_interval"]
    }


def study(name: Literal["cartpole", "stale"], /) -> dict:
    """One of both."""
    return cartpole() if name == "cartpole" else stale()
