"""Tell whether somebody listens to LangChain's callbacks, which take much of a call's time."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig, ensure_config


def has_listeners(config: RunnableConfig | None) -> bool:
    """Return whether the run of this configuration, or of the present one, has a listener, such as LangSmith's."""
    manager = ensure_config(config).get("callbacks")
    return bool(manager if isinstance(manager, list) else manager and manager.handlers)
