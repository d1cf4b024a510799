"""Make a sandbox provider of the operator's own code: `sandbox.use`."""

from __future__ import annotations

from catalogue import N_
from sandbox.base import SandboxProvider, SandboxUnavailable
from sandbox.named_code import NamedCodeError, call_code, find_code
from sandbox.settings import SandboxSettings

PARTS = ("name", "runs_commands", "check", "acquire", "reap", "destroy", "close")


def make_own_provider(settings: SandboxSettings) -> SandboxProvider:
    """Return the provider that `settings.use` names, made with the settings and its options.

    Raises SandboxUnavailable.
    """
    try:
        made: SandboxProvider = call_code(settings.use, find_code(settings.use), settings, options=settings.options)
    except NamedCodeError as error:
        if isinstance(error.__cause__, SandboxUnavailable):
            raise error.__cause__ from None
        raise SandboxUnavailable(
            N_("The sandbox provider {use} cannot be used: {error}."), use=settings.use, error=error.wrong
        ) from error
    if missing := [each for each in PARTS if not hasattr(made, each)]:
        text = N_("The sandbox provider {use} lacks {missing}: it implements SandboxProvider of sandbox/base.py.")
        raise SandboxUnavailable(text, use=settings.use, missing=missing)
    return made
