"""Pings outside of the answer: to a thread, a private chat, or a device."""
