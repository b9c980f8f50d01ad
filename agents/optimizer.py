"""The optimiser of all networks."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class BiasSparingAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) that decays weights but no biases.

    The bias of the last layer holds the mean reward of each arm. If it decayed too, a strong decay
    would make all arms equal instead of choosing the best fixed size.

    Args:
        params: Parameters to train.
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
