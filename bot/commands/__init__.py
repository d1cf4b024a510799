"""The commands that people use in a chat."""
