"""Make a sandbox provider of the operator's own code: `sandbox.use`."""

from __future__ import annotations

from catalogue import N_
from sandbox.base import SandboxProvider, SandboxUnavailable
from sandbox.named_code import NamedCodeError, call_code, find_code, find_misfit
from sandbox.settings import SandboxSettings


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
    if wrong := find_misfit(made, SandboxProvider):
        raise SandboxUnavailable(
            N_("The sandbox provider {use} cannot be used: {error}."), use=settings.use, error=wrong
        )
    return made
