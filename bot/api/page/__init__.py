"""Show a chat in the browser, whose cookie opens what is below `/page`."""
