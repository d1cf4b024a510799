"""Put the service together and run it: the list of features, the engine, listeners and start."""
