"""Identify callers, parse requests, page results and stream events for all HTTP interfaces."""
