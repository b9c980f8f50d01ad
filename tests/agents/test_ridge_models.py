from __future__ import annotations

import numpy as np
import torch

from blockpilot_rl.agents.ridge_models import INTERCEPT_PENALTY, RidgeModels

PENALTY = 3.0


def data(n=60, width=7, models=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, width, dtype=torch.float64, generator=generator)
    features[:, -1] = 1
    counts = torch.randint(0, 3, (n, models), generator=generator).double()
    targets = torch.randn(n, dtype=torch.float64, generator=generator)
    return features, counts, targets


def learned(features, counts, targets, batch):
    models = RidgeModels(counts.shape[1], features.shape[1], PENALTY)
    for rows in torch.arange(len(features)).split(batch):
        models.add(features[rows], counts[rows], targets[rows])
    return models


def test_every_model_is_the_weighted_ridge_regression():
    features, counts, targets = data()
    models = learned(features, counts, targets, batch=60)
    x, y = features.numpy(), targets.numpy()
    prior = np.diag([PENALTY] * (x.shape[1] - 1) + [INTERCEPT_PENALTY])
    for model in range(counts.shape[1]):
        weight = counts[:, model].numpy()
        precision = (x.T * weight) @ x + prior
        expected = np.linalg.solve(precision, (x.T * weight) @ y)
        np.testing.assert_allclose(models.weights[model], expected, rtol=1e-9)
        spread = np.sqrt(np.einsum("np,pq,nq->n", x, np.linalg.inv(precision), x))
        np.testing.assert_allclose(models.spread(features)[:, model], spread, rtol=1e-9)
        np.testing.assert_allclose(models.predict(features)[:, model], x @ expected, rtol=1e-9)


def test_the_batch_sizes_do_not_matter():
    features, counts, targets = data()
    whole, single = (learned(features, counts, targets, batch) for batch in (60, 1))
    torch.testing.assert_close(single.weights, whole.weights)
    torch.testing.assert_close(single.factor, whole.factor)
    assert single.observations == whole.observations == 60


def test_unseen_observations_change_no_model():
    features, counts, targets = data()
    counts[:, 1] = 0
    models = learned(features, counts, targets, batch=8)
    untouched = RidgeModels(1, features.shape[1], PENALTY)
    assert torch.equal(models.weights[1], torch.zeros(features.shape[1], dtype=torch.float64))
    torch.testing.assert_close(models.spread(features)[:, 1], untouched.spread(features)[:, 0])


def test_the_state_dict_is_complete():
    features, counts, targets = data()
    models = learned(features, counts, targets, batch=8)
    loaded = RidgeModels(counts.shape[1], features.shape[1], PENALTY)
    loaded.load_state_dict(models.state_dict())
    assert torch.equal(loaded.predict(features), models.predict(features))
    assert torch.equal(loaded.spread(features), models.spread(features))
