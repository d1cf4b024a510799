"""The sections of the configuration that the agent reads."""
