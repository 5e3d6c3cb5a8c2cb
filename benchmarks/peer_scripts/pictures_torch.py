"""IMPALA's training step in PyTorch, as a single-file script writes it; runs where PyTorch is, without tidelog.

`python pictures_torch.py WAY BATCH`: WAY is `channels-last`, `channels-first` or `compile` (channels last,
by `torch.compile`). Prints a line of facts, then, for every line with a number of seconds that it reads, how many
pictures were trained on in that time. Network, pictures, loss and optimiser are those of `benchmarks/picture_speed.py`.
"""

import sys
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from turns import answer

SIDE, CHANNELS, FEATURES, TARGETS = 64, (16, 32, 32), 256, 16


class Block(nn.Module):
    """Two convolutions beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.two(functional.relu(self.one(functional.relu(x))))


class Impala(nn.Module):
    """Three stacks, and a dense layer with ReLU."""

    def __init__(self) -> None:
        super().__init__()
        stacks: list[nn.Module] = []
        for before, channels in zip((3, *CHANNELS), CHANNELS, strict=False):
            stacks += [nn.Conv2d(before, channels, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
            stacks += [Block(channels), Block(channels)]
        self.stacks, self.dense = nn.Sequential(*stacks), nn.Linear(CHANNELS[-1] * (SIDE // 8) ** 2, FEATURES)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.stacks(pictures.float() / 255.0))
        return functional.relu(self.dense(x.flatten(1)))


def main(way: str, batch: int) -> None:
    """Answer how many pictures are trained on in so many seconds."""
    torch.manual_seed(0)
    order = torch.contiguous_format if way == "channels-first" else torch.channels_last
    network = Impala().to(memory_format=order)
    generator = np.random.default_rng(1)
    drawn = generator.integers(0, 256, (batch, SIDE, SIDE, 3)).astype(np.uint8)
    pictures = torch.from_numpy(drawn).permute(0, 3, 1, 2).contiguous(memory_format=order)
    targets = torch.from_numpy(generator.standard_normal((batch, TARGETS)).astype(np.float32))
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-4)

    def loss(pictures: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(network(pictures)[:, :TARGETS], targets)

    measured = torch.compile(loss) if way == "compile" else loss

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        measured(pictures, targets).backward()
        optimiser.step()

    for _ in range(3):
        step()
    weights = sum(each.numel() for each in network.parameters())
    facts: dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads(), "weights": weights}
    answer(facts, step, counts=batch)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
