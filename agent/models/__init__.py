"""Chat models: their settings, how they are loaded and called, and what their errors mean."""
