"""Code that platforms share: rate limits, the reply writer, health, texts."""
