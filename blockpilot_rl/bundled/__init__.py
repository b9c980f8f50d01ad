"""Data that ships with the package: a drafter, a sweep, and how they were made."""
