from __future__ import annotations

import numpy as np

from blockpilot_rl.decoding.smoothing import fit_line, smooth_lines


def measured_grid(sizes, contexts, rounds, noise, rng, level=lambda b: 0.03 + 0.001 * b):
    """Rounds of a device whose cost is known, with independent noise and a drift per round."""
    truth = np.array([[level(b) + c * (2e-5 + 1e-6 * b) for b in sizes] for c in contexts])
    drift = rng.normal(1.0, 0.05, size=rounds)
    samples = truth[:, :, None] * drift + rng.normal(scale=noise, size=(*truth.shape, rounds))
    return truth, samples


def predicted(lines, contexts):
    return lines[:, 0] + np.outer(contexts, lines[:, 1])


def test_a_straight_device_is_found_exactly():
    sizes, contexts = (1, 2, 4, 16), (96, 192, 384)
    truth, samples = measured_grid(sizes, contexts, 9, 0.0, np.random.default_rng(0))
    drift = np.median(samples / truth[:, :, None])
    lines = smooth_lines(sizes, contexts, samples / drift)
    np.testing.assert_allclose(predicted(lines, contexts), truth, rtol=1e-9)
    np.testing.assert_allclose(lines[:, 1], 2e-5 + 1e-6 * np.array(sizes), rtol=1e-6)


def test_noise_does_not_pick_the_arm_but_structure_stays():
    """Levels of a CPU in float32: 2 and 3 are slower than 5, and that is not noise."""
    sizes, contexts = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16), (96, 192, 288, 384)
    bump = {2: 0.012, 3: 0.009}

    def errors(level):
        """Error along the block size of plain medians and of smoothed lines, in milliseconds."""
        found = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            truth, samples = measured_grid(sizes, contexts, 10, 0.004, rng, level)
            medians = np.median(samples, axis=2)
            smooth = predicted(smooth_lines(sizes, contexts, samples), contexts)
            # Effects that all sizes share, such as drift, do not change their order.
            off = [(m - truth).mean(axis=0) * 1e3 for m in (medians, smooth)]
            found.append([(o - o.mean()).std() for o in off])
        return np.mean(found, axis=0)

    plain, smooth = errors(lambda b: 0.03 + 0.001 * b)
    assert smooth < 0.75 * plain
    plain, smooth = errors(lambda b: 0.03 + 0.001 * b + bump.get(b, 0.0))
    assert smooth < 1.05 * plain
    _, samples = measured_grid(
        sizes, contexts, 10, 0.0005, np.random.default_rng(1), lambda b: 0.03 + bump.get(b, 0.0)
    )
    levels = predicted(smooth_lines(sizes, contexts, samples), contexts).mean(axis=0)
    assert levels[1] > levels[4] + 0.010
    assert levels[2] > levels[4] + 0.007


def test_a_line_has_no_negative_part():
    places = np.array([0.0, 1.0, 3.0])
    np.testing.assert_allclose(fit_line(places, 2 + 0.5 * places), (2, 0.5))
    np.testing.assert_allclose(fit_line(places, np.array([3.0, 2.0, 1.0])), (2, 0), atol=1e-12)


def test_lines_have_no_negative_part():
    """A falling line could only be noise, and no pass takes less than no time."""
    falling = smooth_lines((1, 2), (10, 30), np.array([[4.0, 4.5], [2.0, 2.5]])[:, :, None])
    np.testing.assert_allclose(falling, [(3.0, 0.0), (3.5, 0.0)], atol=1e-12)
    steep = smooth_lines((1,), (10, 30), np.array([[1.0], [9.0]])[:, :, None])
    np.testing.assert_allclose(steep, [(0.0, 0.25)], atol=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(100):  # rounding takes one in ten of such lines to -1e-16
        rising = rng.uniform(0.1, 1, size=(1, 1, 1)) * np.array([1.0, 9.0])[:, None, None]
        assert smooth_lines((1,), (10, 30), rising).min() >= 0
