"""Declare the sections of the configuration that the agent reads."""
