"""Make a sandbox provider of the operator's own code: `sandbox.use`."""

from __future__ import annotations

from catalogue import N_
from sandbox.base import SandboxProvider, SandboxUnavailable
from sandbox.named_code import find_code
from sandbox.settings import SandboxSettings


def make_own_provider(settings: SandboxSettings) -> SandboxProvider:
    """Return the provider that `settings.use` names, made with the settings and its options.

    Raises SandboxUnavailable.
    """
    try:
        made: SandboxProvider = find_code(settings.use)(settings, **settings.options)
    except SandboxUnavailable:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise SandboxUnavailable(
            N_("The sandbox provider {use} cannot be made: {error}."), use=settings.use, error=why
        ) from error
    missing = [
        each
        for each in ("name", "runs_commands", "check", "acquire", "reap", "destroy", "close")
        if not hasattr(made, each)
    ]
    if missing:
        text = N_("The sandbox provider {use} lacks {missing}: it implements SandboxProvider of sandbox/base.py.")
        raise SandboxUnavailable(text, use=settings.use, missing=missing)
    return made
