"""Report the errors of an account's probe for `fawn check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from catalogue import N_, _, list_items
from channels.base import ChannelError, Refused, TokenRejected

CONNECTED = N_("connected as {name}")


@contextmanager
def refusing(base_url: str, suspects: Sequence[str], rejected: str = "") -> Iterator[None]:
    """Raise every ChannelError of a probe as Refused.

    `suspects` are the settings to check. `rejected` says what to do about a token that the platform rejects.
    """
    try:
        yield
    except Refused:
        raise
    except TokenRejected as error:
        raise Refused(_(rejected) if rejected else str(error)) from None
    except ChannelError as error:
        raise Refused(
            _(
                "{base_url} cannot be used: {error}. Check {suspects}.",
                base_url=base_url,
                error=error,
                suspects=list_items([f"`{name}`" for name in suspects]),
            )
        ) from None
