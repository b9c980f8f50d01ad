"""Recorded sweeps: recording, storing, merging and re-pricing them."""
