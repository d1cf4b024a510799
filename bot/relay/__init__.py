"""The relay: it keeps what is posted at a public address until Fawn fetches it (docs/relay.md)."""
