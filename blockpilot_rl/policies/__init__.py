"""Policies: from a prefill state to a block size."""
