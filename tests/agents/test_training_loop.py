from __future__ import annotations

import torch

from blockpilot_rl.agents.training_loop import BiasSparingAdamW


def test_weights_decay_and_biases_do_not():
    """With no gradient left, AdamW multiplies a weight by 1 - lr * decay per step."""
    layer = torch.nn.Linear(3, 2)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.ones_(layer.bias)
    optimizer = BiasSparingAdamW(layer.parameters(), lr=0.1, weight_decay=2.0)
    for _ in range(3):
        optimizer.zero_grad()
        (0.0 * layer(torch.ones(1, 3))).sum().backward()
        optimizer.step()
    torch.testing.assert_close(layer.weight, torch.full((2, 3), 0.8**3))
    torch.testing.assert_close(layer.bias, torch.ones(2))
