"""What the service says of itself: its state, live turns, troubles and outgoing connections."""
