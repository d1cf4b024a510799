"""Memory: what the agent knows of people from earlier conversations."""
