"""The `blockpilot` command; each module is one command."""
