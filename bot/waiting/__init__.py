"""One list of everything that waits for a person, and the way to answer it there."""
