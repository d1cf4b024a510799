"""Skills in the open SKILL.md format: read them, keep them, change them with an operator's consent."""
