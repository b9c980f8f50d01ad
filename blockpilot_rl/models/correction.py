"""An optional head of a drafter that corrects each draft by the token before it.

One parallel pass guesses all positions of a block independently, so "of course" and "no problem"
can become "of problem". A small head that reads the token before a position repairs most of this at
almost no cost (the Markov head of DSpark and the causal correction of Domino, both 2026, are such
heads for DFlash). Drafting is still one pass of the layers, then one cheap step per position.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class CorrectionHead(nn.Module):
    """Corrects the final hidden state of a masked position by the token before it.

    The correction passes through `rank` numbers. Applied to the logits, it costs a product of width
    `rank` instead of the model's width. An untrained head corrects nothing.
    """

    def __init__(self, hidden_size: int, rank: int) -> None:
        """Build an untrained head."""
        super().__init__()
        self.state = nn.Linear(hidden_size, rank, bias=False)
        self.token = nn.Linear(hidden_size, rank, bias=False)
        self.output = nn.Linear(rank, hidden_size, bias=False)
        for linear in (self.state, self.token):
            nn.init.normal_(linear.weight, std=hidden_size**-0.5)
        nn.init.zeros_(self.output.weight)

    def read(self, before: torch.Tensor) -> torch.Tensor:
        """Read the token before a position.

        Args:
            before: Its target embedding, `[..., hidden]`.

        Returns:
            `[..., rank]`.
        """
        part: torch.Tensor = self.token(F.rms_norm(before, before.shape[-1:], eps=1e-6))
        return part

    def mix(self, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Compute the input of `output`.

        Args:
            hidden: Final-norm states of masked positions, `[..., hidden]`.
            before: Target embedding of the token before each, `[..., hidden]`.

        Returns:
            `[..., rank]`.
        """
        return self.join(self.state(hidden), self.read(before))

    @staticmethod
    def join(state: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """Join the results of `state` and `read`, `[..., rank]` each, to the input of `output`."""
        return F.silu(state + token)

    def forward(self, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Correct states, `[..., hidden]`; arguments as for `mix`."""
        corrected: torch.Tensor = hidden + self.output(self.mix(hidden, before))
        return corrected
