"""Step control on recorded traces: exact simulation, oracles, tuning of rules."""
