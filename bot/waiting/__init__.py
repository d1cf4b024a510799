"""List everything that waits for a person, take the answers there, and hand it over."""
