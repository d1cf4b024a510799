"""Skills in the chats: commands, installation, proposals and their decisions."""
