"""The page: a chat in the browser, and the first screen of operators. Its cookie opens what is below `/page`."""
