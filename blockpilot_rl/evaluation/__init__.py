"""Measuring choices of block sizes on held-out prompts."""
