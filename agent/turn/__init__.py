"""Build an agent and run its turns: the chain of policies, the list of tools, checkpoints."""
