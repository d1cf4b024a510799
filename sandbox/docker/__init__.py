"""The provider over a Docker engine: one container per conversation."""
