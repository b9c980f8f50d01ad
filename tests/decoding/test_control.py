"""Controllers in the decoder: the text is the target's, and rounds are those of the simulator."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.control.simulate import simulate
from blockpilot_rl.control.traces import StepTraces
from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.control import OneRequest
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.replay import trace
from blockpilot_rl.decoding.round_costs import RoundCosts
from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.rules import EntropyRule, PrefixRule, RateRule, Start, WholeBlocks
from tests.control.traced import PROFILE
from tests.tiny_pair import PROMPTS, encode

ARMS = (1, 2, 3, 5, 8, 16)
SAMPLINGS = [GREEDY, Sampling(1.0, seed=3), Sampling(0.7, top_k=20, seed=5, draft="argmax")]
BUDGET = 40
COSTS = RoundCosts.from_profile(dataclasses.replace(PROFILE, block_sizes=(1, 2, 16)))


class Adversary(WholeBlocks):
    """Chooses every length randomly, also lengths to verify that are out of range."""

    reads_confidences = True

    def __init__(self, seed: int, stops_early: bool, arms=ARMS) -> None:
        self._generator = np.random.default_rng(seed)
        self.stops_early, self._arms = stops_early, arms
        self.confidences: list[np.ndarray] = []

    def draft_lengths(self, rows, contexts):
        # Several plain rounds in a row leave more to be read.
        plain = self._generator.uniform() < 0.4
        return np.array([1 if plain else self._generator.choice(self._arms)])

    def keeps_drafting(self, rows, confidences):
        return self._generator.uniform(size=1) < 0.7

    def verify_lengths(self, rows, confidences, drafts):
        self.confidences.append(confidences[0, : drafts[0]])
        return self._generator.integers(-1, drafts + 4)


@pytest.fixture(params=["trained", "corrected"])
def any_pair(request):
    """A pair whose drafter drafts at once, and one whose drafter corrects draft after draft."""
    return request.getfixturevalue(request.param)


def rounds_of(generation):
    return list(
        zip(
            generation.drafted[1:],
            generation.block_sizes[1:],
            generation.accepted[1:],
            strict=True,
        )
    )


def controlled(decoder, text, sampling, batch, longest=16):
    prefill = decoder.prefill(encode(decoder.pair, text), BUDGET, longest, sampling)
    return decoder.decode(prefill, OneRequest(batch))


@pytest.mark.parametrize("stops_early", [False, True])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_no_controller_changes_the_text(any_pair, sampling, stops_early):
    decoder = Decoder(any_pair)
    verified = set()
    for seed, text in enumerate(PROMPTS):
        plain = decoder.generate(encode(any_pair, text), 1, BUDGET, sampling)
        found = controlled(decoder, text, sampling, Adversary(seed, stops_early))
        assert found.tokens == plain.tokens
        assert sum(found.accepted) == len(found.tokens)
        for drafted, checked, accepted in rounds_of(found):
            assert 1 <= accepted <= checked <= drafted
        verified |= {checked for _, checked, _ in rounds_of(found)}
    assert {1, 2, 3} <= verified


@pytest.mark.parametrize("stops_early", [False, True])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_rounds_are_those_of_the_simulator(any_pair, sampling, stops_early):
    """Drafted, verified and emitted tokens of every round, for schedules chosen randomly."""
    decoder = Decoder(any_pair)
    assert decoder.drafter is not None
    accepted = set()
    for seed, text in enumerate(PROMPTS[:3]):
        found = controlled(decoder, text, sampling, Adversary(seed, stops_early))
        traces = traced(decoder, text, sampling)
        simulated = simulate(traces, Adversary(seed, stops_early), COSTS, record=True)
        assert rounds_of(found) == simulated.of(0)
        accepted |= set(found.accepted)
    assert len(accepted) > 1 or sampling.draft == "argmax"


@pytest.mark.parametrize(
    "rule",
    [
        RateRule(threshold=0.1),
        RateRule(prior_weight=1.0, threshold=0.3, plain_memory=0.5),
        PrefixRule(16, 0.2),
        PrefixRule(8, 0.2, stops_early=True),
        EntropyRule(8),
    ],
    ids=str,
)
@pytest.mark.parametrize("sampling", SAMPLINGS[:2], ids=str)
def test_rules_decide_in_the_decoder_as_in_the_simulator(any_pair, sampling, rule):
    """From the confidences of the drafts that were proposed, at every draft length."""
    decoder = Decoder(any_pair)
    for text in PROMPTS[:2]:
        warm = np.array([sampling.temperature > 0])
        start = Start(np.array([0.7]), warm, ARMS, COSTS)
        found = controlled(decoder, text, sampling, rule.begin(start))
        traces = traced(decoder, text, sampling)
        simulated = simulate(traces, rule.begin(start), COSTS, record=True)
        assert rounds_of(found) == simulated.of(0)


def traced(decoder, text, sampling) -> StepTraces:
    ids = encode(decoder.pair, text)[0]
    stops = decoder.pair.stop_token_ids
    texts = continue_batch(decoder.target, [ids], BUDGET, stops, sampling, [sampling.seed])
    warm = np.array([sampling.temperature > 0])
    return StepTraces.pad(ARMS, trace(decoder.drafter, texts, ARMS), np.array([len(ids)]), warm)


def test_the_drafter_reads_what_plain_rounds_emitted(any_pair):
    """Drafts after plain rounds are those of a decoder that has read everything."""

    class Scheduled(WholeBlocks):
        def __init__(self, plain: int) -> None:
            self.lengths = [1] * plain + [8] * BUDGET

        def draft_lengths(self, rows, contexts):
            return np.array([self.lengths.pop(0)])

    decoder = Decoder(any_pair)
    traces = traced(decoder, PROMPTS[0], GREEDY)
    for plain in (1, 4, 9):
        found = controlled(decoder, PROMPTS[0], GREEDY, Scheduled(plain))
        assert found.drafted[1 : plain + 2] == [1] * plain + [8]
        at = plain
        for _, _, accepted in rounds_of(found)[plain:]:
            assert accepted == traces.accepted[0, at, ARMS.index(8)]
            at += accepted


@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("stops_early", [False, True])
def test_confidences_are_the_probabilities_of_the_drafts(any_pair, temperature, stops_early):
    """Computed again from the drafter's logits along the chain, at the request's temperature."""
    decoder = Decoder(any_pair)
    sampling = Sampling(temperature, seed=4)
    batch, seen = Adversary(1, stops_early, (8,)), []
    propose = decoder.drafter.propose

    def watch(states, anchor, choose, goes_on=None):
        probabilities = []

        def noting(logits, first):
            drafts = choose(logits, first)
            scores = logits.float() / (temperature or 1.0)
            probabilities.extend(scores.softmax(-1)[range(len(drafts)), drafts].tolist())
            return drafts

        drafts = propose(states, anchor, noting, goes_on)
        seen.append(probabilities)
        return drafts

    decoder.drafter.propose = watch
    controlled(decoder, PROMPTS[1], sampling, batch)
    assert len(seen) == len(batch.confidences) > 3
    for confidences, expected in zip(batch.confidences, seen, strict=True):
        np.testing.assert_allclose(confidences, expected[: len(confidences)], rtol=0.04, atol=1e-4)
        assert stops_early or len(confidences) == len(expected)


@pytest.mark.parametrize("length", [0, -3, 9, 400])
def test_draft_lengths_that_do_not_fit_are_refused(trained, length):
    class Wrong(WholeBlocks):
        def draft_lengths(self, rows, contexts):
            return np.array([length])

    with pytest.raises(BlockPilotError, match=f"draft length of {length}, outside 1 to 8"):
        controlled(Decoder(trained), PROMPTS[0], GREEDY, Wrong(), longest=8)


@pytest.mark.parametrize("rule", [RateRule(), PrefixRule(8, 0.2, stops_early=True)], ids=str)
def test_a_policy_controls_every_round_of_generate(any_pair, rule):
    """And `observe` sees what the record holds."""
    seen = []

    class Policy:
        arms, state_groups = ARMS, ("next_token", "prompt")

        def check_pair(self, fingerprint, template):
            seen.append(fingerprint)

        def check_request(self, temperature, prompt_tokens):
            seen.append((temperature, prompt_tokens))

        def start(self, state, sampling):
            assert state.shape == (4,)
            one = OneRequest(rule.begin(Start(np.array([0.6]), np.array([False]), ARMS, COSTS)))
            observe = one.observe

            def watch(*outcome):
                outcomes.append(outcome)
                observe(*outcome)

            one.observe = watch
            return one

    decoder, outcomes = Decoder(any_pair), []
    found = decoder.generate("hello there", Policy(), BUDGET, warm_up=True)
    plain = decoder.generate("hello there", 1, BUDGET)
    assert found.tokens == plain.tokens
    assert found.block_size is None
    assert outcomes == rounds_of(found)
    assert max(found.drafted) > 1
    assert found.policy_seconds > 0
    assert any_pair.fingerprint in seen


@pytest.mark.parametrize("size", [1, 4, 8])
def test_a_fixed_size_drafts_and_verifies_it_until_the_budget_ends(any_pair, size):
    found = Decoder(any_pair).generate("hello there", size, BUDGET)
    assert found.drafted[1:] == found.block_sizes[1:]
    assert found.block_size == size
    emitted = 1
    for drafted, _, accepted in rounds_of(found):
        assert drafted == min(size, BUDGET - emitted + 1)
        emitted += accepted


def test_the_controller_reads_the_distributions_of_the_anchors(any_pair):
    """Entropy, top-1 probability and margin that the trace holds for the same tokens."""

    class Reading(Adversary):
        reads_target = True

        def __init__(self) -> None:
            super().__init__(3, False)
            self.read: list[np.ndarray] = []

        def read_target(self, rows, next_token):
            self.read.append(next_token[0])

    for sampling in SAMPLINGS[:2]:
        decoder, batch, again = Decoder(any_pair), Reading(), Reading()
        found = controlled(decoder, PROMPTS[1], sampling, batch)
        traces = traced(decoder, PROMPTS[1], sampling)
        simulate(traces, again, COSTS)
        # The decoder also reads the distribution of the last token, which anchors nothing.
        assert len(again.read) == len(found.passes) - 1 == len(batch.read) - 1
        np.testing.assert_allclose(batch.read[:-1], again.read, rtol=2e-3, atol=1e-3)
