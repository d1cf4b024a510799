"""Chat models: settings, loading, streaming and errors."""
