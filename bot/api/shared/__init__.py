"""What all HTTP interfaces share: who calls, paths and bodies, pages of results, streams of events."""
