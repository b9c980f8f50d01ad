"""Gymnasium environments of block-size control, imported as `blockpilot_rl.envs`.

Importing this package registers `blockpilot_rl/BlockSize-v0`, which replays a recorded sweep,
`blockpilot_rl/BlockSizeStep-v0`, which decides every round on recorded traces, and
`blockpilot_rl/BlockSizeLive-v0`, which drives the real decoder. `gymnasium.make_vec` makes the
first two as native batches.
"""

import gymnasium

gymnasium.register(
    id="blockpilot_rl/BlockSize-v0",
    entry_point="blockpilot_rl.envs.block_size:BlockSizeEnv",
    vector_entry_point="blockpilot_rl.envs.gymnasium_vector:BlockSizeVectorEnv",
)
gymnasium.register(
    id="blockpilot_rl/BlockSizeLive-v0",
    entry_point="blockpilot_rl.envs.live:BlockSizeLiveEnv",
    nondeterministic=True,
)
gymnasium.register(
    id="blockpilot_rl/BlockSizeStep-v0",
    entry_point="blockpilot_rl.envs.step:BlockSizeStepEnv",
    vector_entry_point="blockpilot_rl.envs.step_vector:BlockSizeStepVectorEnv",
)
