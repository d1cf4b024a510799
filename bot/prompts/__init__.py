"""Prompts of MCP servers, which people choose by a command."""
