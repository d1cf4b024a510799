"""Report the service's state, live turns, troubles and outgoing connections."""
