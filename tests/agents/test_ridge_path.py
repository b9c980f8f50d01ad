from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.agents.ridge_path import RidgePath

PENALTIES = np.array([1e-3, 0.5, 10.0])


def data(n, width):
    """Random inputs and targets with nonzero means."""
    rng = np.random.default_rng(0)
    return rng.normal(loc=2.0, size=(n, width)), rng.normal(loc=-1.0, size=(n, 3))


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (20, 20)])
def test_it_solves_the_normal_equations_of_every_penalty(shape):
    """Both tall and wide inputs."""
    inputs, targets = data(*shape)
    path = RidgePath.from_data(inputs, targets)
    for penalty in PENALTIES:
        weights, intercept = path.fit(penalty)
        residual = inputs @ weights + intercept - targets
        np.testing.assert_allclose(inputs.T @ residual + penalty * weights, 0, atol=1e-8)
        np.testing.assert_allclose(residual.sum(axis=0), 0, atol=1e-8)


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (20, 20)])
def test_rows_left_out_are_predicted_by_a_fit_to_the_others(shape):
    inputs, targets = data(*shape)
    rows = np.arange(shape[0]) % 3 == 1
    found = RidgePath.from_data(inputs, targets).predict_left_out(PENALTIES, rows)
    others = RidgePath.from_data(inputs[~rows], targets[~rows])
    for penalty, predicted in zip(PENALTIES, found, strict=True):
        weights, intercept = others.fit(penalty)
        np.testing.assert_allclose(predicted, inputs[rows] @ weights + intercept, atol=1e-8)


@pytest.mark.parametrize("kept", [1, 2, 11])
def test_rows_left_out_may_have_twins_and_be_almost_all(kept):
    inputs, targets = data(12, 5)
    inputs[6:], inputs[:, 1] = inputs[:6], 3.0
    rows = np.arange(12) >= kept
    found = RidgePath.from_data(inputs, targets).predict_left_out(PENALTIES, rows)
    others = RidgePath.from_data(inputs[~rows], targets[~rows])
    for penalty, predicted in zip(PENALTIES, found, strict=True):
        weights, intercept = others.fit(penalty)
        np.testing.assert_allclose(predicted, inputs[rows] @ weights + intercept, atol=1e-8)


def test_uninformative_inputs_predict_the_mean():
    inputs, targets = np.full((6, 4), 0.5), data(6, 4)[1]
    path = RidgePath.from_data(inputs, targets)
    weights, intercept = path.fit(1.0)
    np.testing.assert_array_equal(weights, 0)
    np.testing.assert_allclose(intercept, targets.mean(axis=0))
    rows = np.arange(6) < 2
    (predicted,) = path.predict_left_out(np.array([1.0]), rows)
    np.testing.assert_allclose(predicted, np.tile(targets[2:].mean(axis=0), (2, 1)))
