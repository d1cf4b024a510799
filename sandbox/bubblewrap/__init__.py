"""The provider over bubblewrap: one namespace per conversation, no engine needed."""
