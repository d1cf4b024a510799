"""Serve operators: what the service does now, what waits, and what they may decide."""
