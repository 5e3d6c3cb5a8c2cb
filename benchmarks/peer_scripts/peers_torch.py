"""IQL, BCQ, discrete BCQ and BC in PyTorch, as single-file scripts write them; runs where PyTorch is, without tidelog.

`python peers_torch.py WAY ALGORITHM`: WAY is `eager`, `eager-bfloat16` (by `torch.autocast`), `compile` (losses and
optimisers by `torch.compile`) or `d3rlpy`. Prints a line of facts, then, for every line with a number of seconds that
it reads, one of a measurement.
Sizes, batches, losses and optimisers are tidelog's defaults; `benchmarks/peers.py` compares the operations.
"""

import itertools
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from turns import answer

ROWS, EPISODE, SEEN, ACTIONS = 100_000, 1_000, 17, 6
Batch = dict[str, torch.Tensor]


def mlp(*sizes: int) -> nn.Sequential:
    """Dense layers with ReLU between them."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def columns(discrete: bool) -> Batch:
    """Random rows in the shape of the paper's tasks."""
    generator = np.random.default_rng(0)
    seen = generator.standard_normal((ROWS + 1, SEEN)).astype(np.float32)
    action = generator.integers(0, ACTIONS, ROWS) if discrete else generator.uniform(-1, 1, (ROWS, ACTIONS))
    return {
        "s": torch.from_numpy(seen[:-1]),
        "s2": torch.from_numpy(seen[1:]),
        "a": torch.from_numpy(action if discrete else action.astype(np.float32)),
        "r": torch.from_numpy(generator.standard_normal(ROWS).astype(np.float32)),
        "d": torch.full((ROWS,), 0.99),
    }


class Learner:
    """What all scripts share: Adam, gradient steps, Polyak updates; `wrap` compiles or does nothing."""

    batch_size = 256

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self.wrap, self.losses = wrap, {}

    def optimiser(self, network: nn.Module, rate: float) -> torch.optim.Adam:
        return torch.optim.Adam(network.parameters(), lr=rate)

    def step(self, name: str, optimiser: torch.optim.Adam, loss: Callable[..., Any], *inputs: Any) -> Any:
        """One gradient step on a loss `(value, further)`; returns what else the loss computes."""
        if name not in self.losses:
            self.losses[name] = self.wrap(loss), self.wrap(optimiser.step)
        loss, move = self.losses[name]
        value, further = loss(*inputs)
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        move()
        return further

    @torch.no_grad()
    def follow(self, target: nn.Module, network: nn.Module, rate: float = 0.005) -> None:
        torch._foreach_lerp_(list(target.parameters()), list(network.parameters()), rate)


def concat(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts, -1)


def density(mean: torch.Tensor, log_std: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    log_std = log_std.clamp(-5.0, 2.0)
    return (-0.5 * ((action - mean) / log_std.exp()) ** 2 - log_std - 0.9189385).sum(-1)


class Actor(nn.Module):
    """A Gaussian with mean tanh(network) and one log-std for all observations."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.log_std = mlp(SEEN, 256, 256, ACTIONS), nn.Parameter(torch.zeros(ACTIONS))

    def forward(self, s: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return density(torch.tanh(self.net(s)), self.log_std, a)


class BC(Learner):
    """Behaviour cloning of continuous actions."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        super().__init__(wrap)
        self.actor = Actor()
        self.opt = self.optimiser(self.actor, 3e-4)

    def update(self, batch: Batch) -> None:
        self.step("actor", self.opt, lambda s, a: (-self.actor(s, a).mean(), None), batch["s"], batch["a"])


class IQL(Learner):
    """Implicit Q-learning: value, actor, critics, targets, in this order."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        super().__init__(wrap)
        self.actor, self.value = Actor(), mlp(SEEN, 256, 256, 1)
        self.critic = nn.ModuleList(mlp(SEEN + ACTIONS, 256, 256, 1) for _ in range(2))
        self.target = deepcopy(self.critic)
        self.opts = {name: self.optimiser(getattr(self, name), 3e-4) for name in ("actor", "value", "critic")}
        self.prepare = wrap(torch.no_grad()(self._prepare))

    def _prepare(self, s: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        x = concat(s, a)
        return torch.minimum(*(q(x) for q in self.target)).squeeze(-1)

    def value_loss(self, s: torch.Tensor, q: torch.Tensor) -> Any:
        v = self.value(s).squeeze(-1)
        gap = q - v
        return (torch.where(gap < 0, 0.3, 0.7) * gap**2).mean(), v.detach()

    def actor_loss(self, s: torch.Tensor, a: torch.Tensor, advantage: torch.Tensor) -> Any:
        return -((3.0 * advantage).exp().clamp(max=100.0) * self.actor(s, a)).mean(), None

    def critic_loss(self, s: torch.Tensor, a: torch.Tensor, target: torch.Tensor) -> Any:
        x = concat(s, a)
        return sum(((q(x).squeeze(-1) - target) ** 2).mean() for q in self.critic), None

    def update(self, batch: Batch) -> None:
        s, a = batch["s"], batch["a"]
        q = self.prepare(s, a)
        self.step("value", self.opts["value"], self.value_loss, s, q)
        with torch.no_grad():
            v, following = self.value(s).squeeze(-1), self.value(batch["s2"]).squeeze(-1)
        self.step("actor", self.opts["actor"], self.actor_loss, s, a, q - v)
        self.step("critic", self.opts["critic"], self.critic_loss, s, a, batch["r"] + batch["d"] * following)
        self.follow(self.target, self.critic)


class DiscreteBCQ(Learner):
    """Discrete BCQ: critic and imitator by one loss, a double target among supported actions."""

    batch_size = 64

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        super().__init__(wrap)
        self.networks = nn.ModuleList(mlp(SEEN, 256, 256, ACTIONS) for _ in range(2))
        self.target = deepcopy(self.networks[0])
        self.opt = self.optimiser(self.networks, 3e-4)
        self.prepare = wrap(torch.no_grad()(self._prepare))

    def _prepare(self, s2: torch.Tensor, r: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        values, logits = (network(s2) for network in self.networks)
        allowed = logits - logits.amax(1, keepdim=True) >= np.log(0.3)
        best = torch.where(allowed, values, -torch.inf).argmax(1, keepdim=True)
        return r + d * self.target(s2).gather(1, best).squeeze(1)

    def loss(self, s: torch.Tensor, a: torch.Tensor, target: torch.Tensor) -> Any:
        values, logits = (network(s) for network in self.networks)
        q = values.gather(1, a[:, None]).squeeze(1)
        error = functional.smooth_l1_loss(q, target) + functional.cross_entropy(logits, a)
        return error + 0.01 * (logits**2).mean(), None

    def update(self, batch: Batch) -> None:
        target = self.prepare(batch["s2"], batch["r"], batch["d"])
        self.step("both", self.opt, self.loss, batch["s"], batch["a"], target)
        self.follow(self.target, self.networks[0])


class BCQ(Learner):
    """BCQ: generator, critics, perturbation, targets, in this order; ten candidates in targets."""

    batch_size, latent, samples = 100, 2 * ACTIONS, 10

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        super().__init__(wrap)
        self.inward = mlp(SEEN + ACTIONS, 750, 750, 2 * self.latent)
        self.outward = mlp(SEEN + self.latent, 750, 750, ACTIONS)
        self.generator = nn.ModuleList([self.inward, self.outward])
        self.critic = nn.ModuleList(mlp(SEEN + ACTIONS, 400, 300, 1) for _ in range(2))
        self.perturbation = mlp(SEEN + ACTIONS, 400, 300, ACTIONS)
        self.targets = deepcopy(nn.ModuleList([self.critic, self.perturbation]))
        self.opts = {n: self.optimiser(getattr(self, n), 1e-3) for n in ("generator", "critic", "perturbation")}
        self.prepare = wrap(torch.no_grad()(self._prepare))

    def decode(self, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.outward(concat(s, z)))

    @staticmethod
    def perturbed(network: nn.Module, s: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return (a + 0.05 * torch.tanh(network(concat(s, a)))).clamp(-1.0, 1.0)

    def generator_loss(self, s: torch.Tensor, a: torch.Tensor, noise: torch.Tensor) -> Any:
        mean, log_std = self.inward(concat(s, a)).chunk(2, -1)
        log_std = log_std.clamp(-4.0, 15.0)
        error = functional.mse_loss(self.decode(s, mean + log_std.exp() * noise), a)
        divergence = -0.5 * (1 + 2 * log_std - mean**2 - (2 * log_std).exp()).mean()
        return error + 0.5 * divergence, None

    def _prepare(self, s2: torch.Tensor, r: torch.Tensor, d: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        s2 = s2.repeat_interleave(self.samples, 0)
        x = concat(s2, self.perturbed(self.targets[1], s2, self.decode(s2, z)))
        one, two = (critic(x).view(-1, self.samples) for critic in self.targets[0])
        return r + d * (0.75 * torch.minimum(one, two) + 0.25 * torch.maximum(one, two)).amax(1)

    def critic_loss(self, s: torch.Tensor, a: torch.Tensor, target: torch.Tensor) -> Any:
        x = concat(s, a)
        return sum(((q(x).squeeze(-1) - target) ** 2).mean() for q in self.critic), None

    def perturbation_loss(self, s: torch.Tensor, a: torch.Tensor) -> Any:
        return -self.critic[0](concat(s, self.perturbed(self.perturbation, s, a))).mean(), None

    def update(self, batch: Batch) -> None:
        s, a = batch["s"], batch["a"]
        rows, latent = len(s), self.latent
        self.step("generator", self.opts["generator"], self.generator_loss, s, a, torch.randn(rows, latent))
        z = torch.randn(rows * self.samples, latent).clamp(-0.5, 0.5)
        target = self.prepare(batch["s2"], batch["r"], batch["d"], z)
        self.step("critic", self.opts["critic"], self.critic_loss, s, a, target)
        with torch.no_grad():
            proposed = self.decode(s, torch.randn(rows, latent).clamp(-0.5, 0.5))
        self.critic.requires_grad_(False)
        self.step("perturbation", self.opts["perturbation"], self.perturbation_loss, s, proposed)
        self.critic.requires_grad_(True)
        self.follow(self.targets[0], self.critic)
        self.follow(self.targets[1], self.perturbation)


SCRIPTS: dict[str, Any] = {"iql": IQL, "bcq": BCQ, "discrete-bcq": DiscreteBCQ, "bc": BC}


def rounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the factors of its matrix products rounded to bfloat16."""

    def call(*arguments: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return function(*arguments)

    return call


def script(way: str, name: str) -> tuple[Callable[[], None], dict[str, Any]]:
    """Return one update with its sampling, and facts."""
    wrap = {"compile": torch.compile, "eager-bfloat16": rounded}.get(way, lambda function: function)
    learner, rows = SCRIPTS[name](wrap), columns(name == "discrete-bcq")

    def update() -> None:
        index = torch.randint(0, ROWS, (learner.batch_size,))
        learner.update({name: column[index] for name, column in rows.items()})

    return update, {"batch_size": learner.batch_size}


def of_d3rlpy(name: str) -> tuple[Callable[[], None], dict[str, Any]]:
    """Return one update of d3rlpy with its sampling, with tidelog's sizes."""
    import d3rlpy
    from d3rlpy.algos import BCConfig, BCQConfig, DiscreteBCQConfig, IQLConfig
    from d3rlpy.models import VectorEncoderFactory as Encoder

    two, three, seven = Encoder([256, 256]), Encoder([400, 300]), Encoder([750, 750])
    configs = {
        "iql": IQLConfig(actor_encoder_factory=two, critic_encoder_factory=two, value_encoder_factory=two),
        "bc": BCConfig(batch_size=256, learning_rate=3e-4, policy_type="stochastic", encoder_factory=two),
        "discrete-bcq": DiscreteBCQConfig(
            batch_size=64, learning_rate=3e-4, encoder_factory=two, share_encoder=False, beta=0.01
        ),
        "bcq": BCQConfig(
            n_action_samples=10,
            actor_encoder_factory=three,
            critic_encoder_factory=three,
            imitator_encoder_factory=seven,
        ),
    }
    rows, config = columns(name == "discrete-bcq"), configs[name]
    ends = np.arange(ROWS) % EPISODE == EPISODE - 1
    action = rows["a"].numpy()
    data = d3rlpy.dataset.MDPDataset(
        rows["s"].numpy(), action[:, None] if action.ndim == 1 else action, rows["r"].numpy(), np.zeros(ROWS), ends
    )
    algorithm = config.create(device="cpu:0")
    algorithm.build_with_dataset(data)

    def update() -> None:
        algorithm.update(data.sample_transition_batch(config.batch_size))

    return update, {"batch_size": config.batch_size, "d3rlpy": d3rlpy.__version__}


def main(way: str, name: str) -> None:
    """Measure where asked."""
    torch.manual_seed(0)
    update, facts = of_d3rlpy(name) if way == "d3rlpy" else script(way, name)
    counted = update if way != "compile" else script("eager", name)[0]
    counted()
    with FlopCounterMode(display=False) as counter:
        counted()
    for _ in range(20):
        update()
    facts |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
    answer(facts | {"operations_per_update": counter.get_total_flops()}, update, counts=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
