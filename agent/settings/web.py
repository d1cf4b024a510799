"""The section `web:` of config.yaml. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent.setting import Secret, setting


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """One entry of `web.search`."""

    provider: Literal["searxng", "tavily", "brave", "exa", "infoquest", "ddgs"] = field(
        metadata={
            "help": "`searxng`: your own instance, at `url`; `ddgs`: scrapes public search engines without a key, as"
            " best effort (`make setup EXTRAS=ddgs`); the others need `api_key`"
        }
    )
    api_key: Secret | None = setting(None, "the provider's key")
    url: str = setting("", "URL of the SearXNG instance; of the others: another address of their API")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the agent may do on the web, from this machine and not from the sandbox."""

    fetch: bool = setting(
        True, "the agent may read public pages; private and local addresses are always refused (docs/web.md)"
    )
    robots: bool = setting(True, "pages that a site's robots.txt excludes are not read")
    hosts: tuple[str, ...] = setting(
        (),
        "the only hosts whose pages are read, with their subdomains, such as `example.com`; empty: every public host",
    )
    proxy: str = setting(
        "", "URL of an HTTP proxy through which pages and searches are requested, such as `http://proxy.example:3128`"
    )
    search: tuple[SearchSettings, ...] = setting(
        (), "search providers, described below; when one fails, the next one answers"
    )
