"""Prompt suites and the recorded sweeps that are collected on them."""
