"""What every other part of the bot may use: folders, logs, background tasks, times and texts."""
