"""Prompts: where they come from, and the built-in suite."""
