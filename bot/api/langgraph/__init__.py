"""Speak the wire of LangGraph's own clients about the threads, runs and streams of `/v1`."""
