"""Let programs do over HTTP what people do in chats, by calling what the chats' commands call."""
