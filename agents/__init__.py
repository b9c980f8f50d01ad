"""Learners of block-size policies, imported as `blockpilot_rl.agents`."""
