"""The section `metrics:` of config.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.setting import setting
from bot.config.document import Document
from catalogue import _


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Metrics for Prometheus, at `GET /metrics` of `http.listen` (docs/operations.md)."""

    enabled: bool = setting(False, "count messages, turns, model calls, tools and platform calls; needs `http.listen`")


def check_metrics(document: Document, sections: dict[str, Any]) -> None:
    """Metrics need an address where they are scraped."""
    metrics, http = sections.get("metrics"), sections.get("http")
    listens = isinstance(http, dict) and http.get("listen")
    if isinstance(metrics, dict) and metrics.get("enabled") is True and not listens:
        document.fault(("metrics", "enabled"), _("needs a listener"), _("set `http.listen`, such as 127.0.0.1:8080"))
