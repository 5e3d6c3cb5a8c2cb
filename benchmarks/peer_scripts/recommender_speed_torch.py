"""GRU4Rec and SASRec in PyTorch, as single-file scripts write them; runs where PyTorch is, without tidelog.

`python recommender_speed_torch.py READER SETTINGS`: READER is `gru` or `attention`, SETTINGS a JSON object
with the sizes and the file of the events. Prints a line of facts, then, for every line with a number of seconds that
it reads, one of a measurement. `benchmarks/recommender_speed_peers.py` compares it with tidelog.

Windows, batch, sizes, dropout, Adam and the loss are those of recommender BCQ's table and reader: `targets` items of a
window, each predicted from the state before it; a softmax over all items, or over `sampled` items by popularity to the
power 0.75, less the log of the expected count. Item vectors are neither normalised nor biased: the script does less.
"""

import json
import math
import sys
from typing import Any

import numpy as np
import torch
from peers_torch import answer
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode


class GRU4Rec(nn.Module):
    """One gated recurrent unit and a layer (Hidasi et al. 2016)."""

    def __init__(self, size: int, length: int, dropout: float) -> None:
        super().__init__()
        self.drop, self.unit, self.out = (
            nn.Dropout(dropout),
            nn.GRU(size, size, batch_first=True),
            nn.Linear(size, size),
        )

    def forward(self, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        return self.out(self.unit(self.drop(x))[0])


class Block(nn.Module):
    """Causal self-attention, then a layer for each step."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(size), nn.LayerNorm(size)
        self.three, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide, self.narrow, self.drop = nn.Linear(size, size), nn.Linear(size, size), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        q, k, v = self.three(self.before(x)).unsqueeze(1).chunk(3, -1)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + self.drop(self.out(seen.squeeze(1)))
        return x + self.drop(self.narrow(torch.relu(self.wide(self.between(x)))))


class SASRec(nn.Module):
    """Two blocks of one head over positions (Kang and McAuley 2018)."""

    def __init__(self, size: int, length: int, dropout: float) -> None:
        super().__init__()
        self.positions, self.drop = nn.Embedding(length, size), nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(size, dropout) for _ in range(2))
        self.register_buffer("causal", torch.ones(length, length, dtype=torch.bool).tril())
        self.register_buffer("own", torch.eye(length, dtype=torch.bool))

    def forward(self, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        x = self.drop(x + self.positions.weight)
        visible = ((self.causal & real[:, None, :]) | self.own)[:, None]
        for block in self.blocks:
            x = block(x, visible)
        return x


class Recommender(nn.Module):
    """A table of items, a reader of histories, and the error of the next items."""

    def __init__(
        self, reader: str, items: int, size: int, length: int, dropout: float, log_drawn: torch.Tensor
    ) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(items + 1, size, padding_idx=0), nn.LayerNorm(size)
        self.reader = {"gru": GRU4Rec, "attention": SASRec}[reader](size, length, dropout)
        self.log_drawn = log_drawn
        nn.init.normal_(self.table.weight, std=size**-0.5)

    def forward(self, seen: torch.Tensor, chosen: torch.Tensor, drawn: torch.Tensor | None) -> torch.Tensor:
        """Items [B, L] before the targets [B, T], and drawn items [S] or None -> the mean error."""
        x = math.sqrt(self.table.embedding_dim) * self.table(seen)
        states = self.norm(self.reader(x, seen > 0))[:, -chosen.shape[1] :]
        if drawn is None:
            logits = states @ self.table.weight.T
            return functional.cross_entropy(logits.flatten(0, 1), chosen.flatten())
        positive = (states * self.table(chosen)).sum(-1, keepdim=True)
        others = states @ self.table(drawn).T - self.log_drawn[drawn] - math.log(len(drawn))
        others = others.masked_fill(chosen[..., None] == drawn, -torch.inf)
        logits = torch.cat([positive, others], -1)
        return (logits.logsumexp(-1) - positive[..., 0]).mean()


def updates_of(reader: str, settings: dict[str, Any]) -> Any:
    """Return the function of one update with its sampling."""
    events = np.load(settings["events"])
    item, start = torch.from_numpy(events["item"].astype(np.int64)), torch.from_numpy(events["start"].astype(np.int64))
    ends = torch.from_numpy(events["ends"].astype(np.int64))
    often = torch.bincount(item, minlength=settings["items"] + 1).double()[1:] + 1.0
    share = often**0.75 / (often**0.75).sum()
    cumulative, log_drawn = share.cumsum(0), torch.cat([torch.zeros(1), share.log().float()])
    length, targets, sampled = settings["history"], settings["targets"], settings["sampled"]
    model = Recommender(reader, settings["items"], settings["size"], length, settings["dropout"], log_drawn)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    back = torch.arange(-length, 1)

    def update() -> torch.Tensor:
        last = ends[torch.randint(0, len(ends), (settings["batch_size"],))]
        grid = last[:, None] + back
        window = torch.where(grid >= start[last][:, None], item[grid.clamp(min=0)], 0)
        drawn = None
        if sampled:
            drawn = (
                torch.searchsorted(cumulative, torch.rand(sampled, dtype=torch.float64)).clamp(max=len(share) - 1) + 1
            )
        loss = model(window[:, :-1], window[:, -targets:], drawn)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return update


def main(reader: str, settings: dict[str, Any]) -> None:
    """Measure where asked."""
    torch.manual_seed(0)
    update = updates_of(reader, settings)
    update()
    with FlopCounterMode(display=False) as counter:
        update()
    losses = [float(update()) for _ in range(20)]
    facts = {"torch": torch.__version__, "threads": torch.get_num_threads(), "loss": losses[-1]}
    answer(facts | {"operations_per_update": counter.get_total_flops()}, update)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
