"""Choose the engine of the sandboxes."""
