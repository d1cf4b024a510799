"""The host's side of the byte stream to the command server inside a sandbox."""
