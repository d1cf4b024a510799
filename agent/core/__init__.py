"""Define what policies, tools and sub-agents are written against: the turn's context, `Policy` and `AgentTool`."""
