"""The outside world on loopback: wire-faithful servers of ours that the real SDKs talk to."""
