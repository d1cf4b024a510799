"""Provide folders, logs, background tasks, times and texts to every other part of the bot."""
