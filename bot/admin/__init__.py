"""An operator's tools: commands, control socket, checks, backup, status."""
