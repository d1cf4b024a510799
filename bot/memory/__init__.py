"""What the agent remembers of people and chats: recalled before a turn, extracted after it."""
