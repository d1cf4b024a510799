"""The configuration: its sections, how a file becomes them, and the page that documents them."""
