"""Link accounts of one person on different platforms, by a proof from both sides."""
