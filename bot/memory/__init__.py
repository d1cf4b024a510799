"""Remember people and chats: recall before a turn, extract after it."""
