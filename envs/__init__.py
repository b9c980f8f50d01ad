"""Gymnasium environments of block-size control, imported as `blockpilot_rl.envs`."""
