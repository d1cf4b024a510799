"""The wire of LangGraph's own clients: their threads, runs and streams are those of `/v1`, seen otherwise."""
