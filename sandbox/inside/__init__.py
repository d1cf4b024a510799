"""All that runs inside a sandbox, beside hostile code: standard library only, Python 3.9 or later."""
