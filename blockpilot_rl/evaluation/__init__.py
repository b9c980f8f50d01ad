"""Comparison of policies on held-out prompts."""
