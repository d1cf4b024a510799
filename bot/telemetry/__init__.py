"""Metrics and traces of the running service, made of the spans that it reports."""
