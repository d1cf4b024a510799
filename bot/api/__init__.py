"""The HTTP API: what people do in chats, for programs. No rule lives here; it calls what the chats' commands call."""
