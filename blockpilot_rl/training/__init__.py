"""Training a drafter for a target."""
