"""Wire-faithful servers of the platforms and the model on loopback, for the real SDKs."""
