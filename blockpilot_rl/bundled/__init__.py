"""Data that ships with the package: a drafter, a policy and a sweep."""
