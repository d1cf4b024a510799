"""The agent's tools, one per file."""
