"""Decide about each tool call before it runs: rules, shell lines, and the policy that asks a person."""
