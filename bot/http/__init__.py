"""Answer machines over HTTP."""
