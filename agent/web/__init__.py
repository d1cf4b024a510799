"""Access to the web: search providers, and pages fetched safely from the host."""
