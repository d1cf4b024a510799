"""The labels of the containers: the service, by the path of its data, and the conversation."""

INSTANCE, KEY = "fawn.instance", "fawn.key"
