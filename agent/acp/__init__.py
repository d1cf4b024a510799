"""External agents over the Agent Client Protocol."""
