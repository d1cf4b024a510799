"""Hooks: what other systems post becomes work in a chat (docs/hooks.md)."""
