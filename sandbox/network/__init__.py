"""Network access of sandboxes: the egress proxy, and previews of servers inside."""
