"""What every platform shares: rate limits, the reply writer, health, texts."""
