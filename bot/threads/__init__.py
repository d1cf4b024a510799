"""Threads: which of several questions a text answers."""
