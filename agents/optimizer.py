"""The optimiser of every network here."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class BiasSparingAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) that decays weights but no biases.

    What an arm earns on average is in the bias of the last layer. Decaying it with the weights
    would make a strong decay choose among all arms alike, not the best fixed size.

    Args:
        params: What to train.
        lr: Learning rate.
        weight_decay: Decay of parameters with two or more dimensions.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], lr: float, weight_decay: float
    ) -> None:
        everything = list(params)
        super().__init__(
            [
                {"params": [p for p in everything if p.ndim > 1], "weight_decay": weight_decay},
                {"params": [p for p in everything if p.ndim <= 1], "weight_decay": 0.0},
            ],
            lr=lr,
        )
