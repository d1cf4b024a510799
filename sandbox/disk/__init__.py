"""The folders of conversations on the host: safe access, quotas."""
