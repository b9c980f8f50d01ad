"""Comparisons of agents on a recorded sweep."""
