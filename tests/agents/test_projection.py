from __future__ import annotations

import numpy as np
import pytest
import torch

from blockpilot_rl.agents.projection import Projection
from blockpilot_rl.decoding.state import StateLayout

WIDE = StateLayout((("last_hidden", 300), ("next_token", 3), ("prompt", 1), ("draft", 15)))


def states_of(layout, n=200, seed=0, rank=20):
    """States whose wide group varies along few directions, in its own units."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, layout.width))
    width = dict(layout.groups)["last_hidden"]
    states[:, :width] = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, width))
    return (50 * states + 7).astype(np.float32)


def test_narrow_groups_are_kept_and_wide_ones_are_reduced():
    states = states_of(WIDE)
    projection = Projection.fit(states, WIDE, 64)
    features = projection(states).numpy()
    assert features.shape == (200, 65)
    np.testing.assert_array_equal(features[:, -1], 1)
    scaled = (states - states.mean(axis=0)) / states.std(axis=0)
    kept = scaled[:, WIDE.columns(["prompt", "next_token", "draft"])]
    np.testing.assert_allclose(features[:, :19], kept, atol=1e-4)
    # 45 components hold all that varies along 20 directions.
    hidden = scaled[:, :300]
    left = hidden - features[:, 19:64] @ projection.matrix[:300, 19:64].numpy().T
    assert (left**2).sum() < 1e-6 * (hidden**2).sum()


def test_components_are_orthonormal_and_in_order_of_their_variance():
    states = states_of(WIDE)
    projection = Projection.fit(states, WIDE, 64)
    matrix = projection.matrix[:, : 19 + 20].double()
    torch.testing.assert_close(
        matrix.T @ matrix, torch.eye(39, dtype=torch.float64), atol=1e-5, rtol=0
    )
    variance = projection(states)[:, 19:39].var(dim=0)
    assert (variance.diff() <= 1e-3).all()


def test_states_that_fit_are_taken_as_they_are():
    layout = StateLayout((("last_hidden", 12), ("next_token", 3), ("prompt", 1)))
    states = states_of(layout)
    projection = Projection.fit(states, layout, 64)
    assert torch.equal(projection.matrix, torch.eye(16))
    assert projection.width == 17


def test_a_single_wide_group():
    layout = StateLayout((("last_hidden", 300),))
    states = states_of(layout)
    assert Projection.fit(states, layout, 16)(states).shape == (200, 17)


def test_narrow_groups_that_would_crowd_out_the_wide_one_are_projected_too():
    projection = Projection.fit(states_of(WIDE), WIDE, 16)
    kept = (projection.matrix != 0).sum(dim=0) == 1
    assert kept.sum() == 4
    assert projection.width == 17


@pytest.mark.parametrize("n", [1, 2, 30])
def test_fewer_states_than_components(n):
    states = states_of(WIDE, n=n)
    features = Projection.fit(states, WIDE, 64)(states)
    assert features.shape == (n, 65)
    assert torch.isfinite(features).all()


def test_constant_states_have_no_components():
    states = np.full((80, WIDE.width), 3.0, dtype=np.float32)
    features = Projection.fit(states, WIDE, 64)(states)
    np.testing.assert_allclose(features[:, :-1], 0, atol=1e-6)


def test_equal_states_give_equal_features():
    states = states_of(WIDE)
    first, second = (Projection.fit(states, WIDE, 32) for _ in range(2))
    assert torch.equal(first.matrix, second.matrix)


def test_weights_on_features_become_weights_on_states():
    states = states_of(WIDE)
    projection = Projection.fit(states, WIDE, 24)
    weight = torch.randn(5, 24, generator=torch.Generator().manual_seed(0))
    scaled = (torch.from_numpy(states) - projection.mean) / projection.scale
    torch.testing.assert_close(
        scaled @ projection.unfold(weight).T,
        (projection(states)[:, :-1] @ weight.T.double()).float(),
        atol=1e-3,
        rtol=1e-4,
    )
