"""The `blockpilot` command; the files in `scripts/` call into it."""
