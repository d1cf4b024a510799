"""What the configuration says about previews. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PreviewSettings:
    """`sandbox.preview` in config.yaml."""

    enabled: bool = field(
        default=False, metadata={"help": "the agent may show a server that it runs in its sandbox, by a link"}
    )
    listen: str = field(default="127.0.0.1:8088", metadata={"help": "address and port where those links are served"})
    public_url: str = field(
        default="",
        metadata={
            "help": "what people reach that address by, such as `https://*.preview.example.com`, where each link is a"
            " site of its own, or `https://preview.example.com`; empty: `listen`"
        },
    )
    minutes: float = field(default=60.0, metadata={"help": "how long a link works", "least": 1})
