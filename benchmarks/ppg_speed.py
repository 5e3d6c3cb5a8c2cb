"""Decisions a second on CartPole and Hopper: collecting alone and training.

64 environments x 128 steps, 64 x 64 tanh, 4 minibatches. `ppo` is the published baseline, one trunk and 3 epochs;
`ppo_two_networks` has two and 4 epochs; `ppo_small_minibatches` is that with Stable-Baselines3's defaults, 10 epochs in
minibatches of 64 single steps; `benchmarks/sb3_ppo.py` runs both there. `ppg` is `ppo_two_networks` with its auxiliary
phase. Hopper has the preset `mujoco`, without the auxiliary phase and with it. Rates are of chunks of whole rounds,
after compilation.
"""

import time
from dataclasses import replace

import jax

import tidelog as tl
from benchmarks.keep import keep, median_and_range
from tidelog.envs.registry import functional
from tidelog.training.collect import initial_collection_state, rollout
from tidelog.training.engine import Engine
from tidelog.training.learn import learn

PPO = tl.PPO(num_envs=64, rollout_steps=128, minibatches=4, discount=0.99, learning_rate=2.5e-3, entropy_bonus=0.0)
TWO = replace(PPO, architecture="dual", policy_epochs=4, value_epochs=4)
PPG = replace(TWO, auxiliary_epochs=6, policy_iterations=16, auxiliary_minibatch=16)
SMALL = replace(TWO, policy_epochs=10, value_epochs=10, minibatches=128, num_chunks=128)
SETTINGS = {"ppo": PPO, "ppo_two_networks": TWO, "ppo_small_minibatches": SMALL, "ppg": PPG}
ENVIRONMENTS = ("jax:CartPole-v1", "CartPole-v1")
MUJOCO = tl.PPG.preset("mujoco")
HOPPER, HOPPER_SETTINGS = "Hopper-v5", {"ppo": replace(MUJOCO, auxiliary_epochs=0), "ppg": MUJOCO}
COMMAND = "python -m benchmarks ppg_speed"
REPEATS = 9


def advanced(trainer: Engine, decisions: int) -> int:
    """How many decisions a learner made and learnt from: at least so many, in whole rounds."""
    done = trainer.done
    while trainer.done - done < decisions:
        trainer.advance(10**6, decisions)
    return int(trainer.done - done)


def training(algorithm: tl.PPG, env: str, seconds: float = 4.0) -> dict:
    """Decisions a second while learning, of one seed, in chunks of whole rounds, or of all between auxiliary phases."""
    size = algorithm.num_envs * algorithm.rollout_steps
    updates = algorithm.policy_epochs * algorithm.minibatches
    trainer = learn(algorithm, env, 10**9, eval_every=10**9, train=False)._engine
    trainer.compile()
    for _ in range(2 * algorithm.policy_iterations):
        trainer.advance(updates, size)
    chunk = 8 * size if env.startswith("jax:") else size
    repeats = REPEATS
    if algorithm.auxiliary_epochs:
        chunk, repeats = algorithm.policy_iterations * size, 5
    rates, begin = [], time.monotonic()
    while len(rates) < repeats or time.monotonic() - begin < seconds:
        since = time.monotonic()
        rates.append(advanced(trainer, chunk) / (time.monotonic() - since))
    return median_and_range(rates)


def collecting(algorithm: tl.PPG, env: str) -> dict:
    """Decisions a second of playing alone."""
    run = learn(algorithm, env, 10**6, train=False)
    state, steps = run._engine.learners[0].state, algorithm.rollout_steps
    params = algorithm.policy_params(state)
    if env.startswith("jax:"):
        source = functional(env)
        names = ("observation", "action", "log_probability", "following")
        begin_at = initial_collection_state(source, algorithm.num_envs, jax.random.key(0))
        play = jax.jit(lambda state, key: rollout(source, algorithm, params, state, key, steps, names))
        once = lambda i: jax.block_until_ready(play(begin_at, jax.random.key(i)))  # noqa: E731
    else:
        (host,) = run._engine._assignment.hosts
        once = lambda i: host.rollout(algorithm, params, jax.random.key(i), i, steps)  # noqa: E731
    once(0)
    rates = []
    for i in range(REPEATS):
        begin = time.monotonic()
        once(i + 1)
        rates.append(algorithm.num_envs * steps / (time.monotonic() - begin))
    return median_and_range(rates)


def study() -> dict:
    found = {
        env: {
            "collecting": collecting(PPO, env),
            **{name: training(h, env) for name, h in SETTINGS.items()},
        }
        for env in ENVIRONMENTS
    }
    found[HOPPER] = {"collecting": collecting(MUJOCO, HOPPER)}
    found[HOPPER] |= {name: training(h, HOPPER) for name, h in HOPPER_SETTINGS.items()}
    keep("ppg_speed_cpu", COMMAND, {"environments": PPO.num_envs, "rollout_steps": PPO.rollout_steps, **found})
    return found
