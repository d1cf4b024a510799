"""Sub-agents: the tool `task` runs other agents inside a turn, and named agents answer in place of the default one."""
