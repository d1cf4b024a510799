"""What of a network a sandbox may reach, and what may reach a sandbox."""
