from __future__ import annotations

import dataclasses

import pytest

from blockpilot_rl.evaluation.results import Verdict
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.headroom.measure import measure_headroom
from blockpilot_rl.headroom.results import HeadroomVerdict
from blockpilot_rl.reports.headroom import headroom_reason, headroom_values
from blockpilot_rl.reports.sentences import verdict_reason
from tests.synthetic import synthetic_table

VERDICT = Verdict(
    ship="ridge",
    block_size=None,
    code="ships",
    best_fixed=6,
    agents=2,
    confidence=0.975,
    family_margin=0.01,
    best_agent="ridge",
    gain=Interval(0.015, 0.008, 0.023),
    total_gain=Interval(0.003, -0.01, 0.02),
    worst_family="story",
    worst_family_gain=Interval(0.002, -0.005, 0.01),
    within_margin=True,
    unsure_families=[],
    riskiest_family="story",
    riskiest_family_gain=Interval(0.009, 0.002, 0.016),
    loss_probability=0.003,
)
HEADROOM = HeadroomVerdict(
    worth="maybe",
    min_gain=0.02,
    block_size=6,
    oracle_gain=Interval(0.12, 0.1, 0.14),
    largest_gain=0.14,
)


def worded(**changed) -> str:
    return verdict_reason(dataclasses.replace(VERDICT, **changed))


@pytest.fixture(scope="module")
def found():
    return measure_headroom(synthetic_table(150))


def test_an_agent_that_ships():
    assert worded() == (
        "ridge gains +1.5% in mean speedup over the best fixed size 6 (97.5% interval +0.8% to "
        "+2.3%, adjusted for 2 agents), decision time included, and +0.3% in total time; all "
        "families estimated together, the one most at risk is story, +0.9% (+0.2% to +1.6%), which "
        "loses more than 1.0% with a probability of 0.3%"
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"best_fixed": 1}, "over plain decoding ("),
        ({"agents": 1}, "to +2.3%), decision time"),
        ({"loss_probability": 0.12}, "with a probability of 12.0%"),
        ({"riskiest_family": "code"}, "the one most at risk is code, +0.9%"),
        ({"family_margin": 0.02}, "loses more than 2.0% with"),
        ({"passed_over": ["dqn"]}, "; dqn has a higher lower bound but loses too much in a family"),
        ({"passed_over": ["a2c", "dqn"]}, "; a2c and dqn have a higher lower bound but lose too"),
    ],
)
def test_what_is_added_to_it(changed, words):
    assert words in worded(**changed)


def test_why_a_fixed_size_ships():
    assert worded(code="no_agents", best_agent=None, gain=None) == "no learned agent was compared"
    assert worded(code="no_gain", gain=Interval(0.001, -0.01, 0.01)) == (
        "no agent is significantly faster than the best fixed size 6; the best of them, ridge, "
        "gains +0.1% in mean speedup (97.5% interval -1.0% to +1.0%, adjusted for 2 agents), "
        "decision time included"
    )
    change = Interval(0.001, -0.002, 0.004)
    assert worded(code="no_gain_over_constant", constant=4, gain_over_constant=change).endswith(
        ", but +0.1% over always taking 4, one of its own sizes (-0.2% to +0.4%), so it is not "
        "significantly faster than a fixed size"
    )
    losing = {"within_margin": False, "loss_probability": 0.4, "losing_families": ["story", "code"]}
    assert worded(code="family_loss", **losing).endswith(
        "loses more than 1.0% with a probability of 40.0%; that is too likely in story, code"
    )
    unseen = Interval(-0.02, -0.03, -0.01)
    assert worded(code="unseen_loss", unseen_gain=unseen).endswith(
        "but -2.0% on unseen sources (-3.0% to -1.0%)"
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "adapting may be worth it here: knowing the fastest size of each request would gain"),
        ({}, "would gain +12.0% over the best fixed size 6, but no simple rule gains a signif"),
        ({}, "`blockpilot compare`"),
        (
            {"crossfit_gain": Interval(0.006, -0.01, 0.015), "crossfit_prompts": 40},
            "+12.0% (+0.6% if the 40 prompts with several answers are cross-fitted)",
        ),
        ({"prefix_gain": Interval(0.2, 0.1, 0.3)}, ", the best prefix at every step +20.0%"),
        (
            {"worth": "no", "largest_gain": 0.015},
            "at most +1.5%, which is less than the required 2.0%; ship the best fixed size 6",
        ),
        ({"worth": "no", "block_size": 1}, "ship plain decoding"),
        (
            {
                "worth": "yes",
                "candidate": "family",
                "candidate_kind": "group",
                "candidate_gain": Interval(0.05, 0.04, 0.06),
                "candidate_confidence": 0.975,
            },
            "worth it here: the best size of each family alone gains +5.0% in mean speedup (97.5%",
        ),
        (
            {
                "worth": "yes",
                "candidate": "confident prefix",
                "candidate_kind": "rule",
                "candidate_gain": Interval(0.05, 0.04, 0.06),
                "candidate_confidence": 0.975,
            },
            "the step rule “confident prefix” alone gains +5.0%",
        ),
    ],
)
def test_whether_adapting_is_worth_it(found, changed, words):
    verdict = dataclasses.replace(HEADROOM, **changed)
    assert words in headroom_reason(dataclasses.replace(found, verdict=verdict))


def test_the_json_keeps_the_reason(found):
    values = headroom_values(found)
    assert values["verdict"]["reason"] == headroom_reason(found)
    assert values["verdict"]["worth"] == found.verdict.worth
