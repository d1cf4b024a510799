"""Keep one sandbox per conversation: started when first used, ended when idle."""
