"""The built-in demo: a chat model that needs no account."""
