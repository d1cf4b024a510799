"""Sandboxes by conversation: started when first used, kept while they are used, ended when idle."""
