"""Decide who may do what, and how far that reaches: access, roles, rules, approvals, rates."""
