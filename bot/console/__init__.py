"""Consoles on this machine: attached to the running service, or with one of their own."""
