"""Tools of MCP servers. The SDK is imported when the first server starts, by `agent/mcp/connection.py` only."""
