"""The optional packages: which belong to which extra, and how an extra is installed from its lock."""

from __future__ import annotations

from collections.abc import Mapping

from catalogue import N_, LazyText

EXTRAS: Mapping[str, tuple[str, ...]] = {  # what `make setup EXTRAS=NAME` installs → the modules that it brings
    "anthropic": ("langchain_anthropic", "anthropic"),
    "ddgs": ("ddgs",),
}
INSTALL_EXTRA = N_("`make setup EXTRAS={extra}`, for an image `docker build --build-arg EXTRAS={extra}`")
INSTALL_PACKAGE = N_("`.venv/bin/pip install {package}`, with the Python that runs Fawn")


def describe_install(module: str) -> LazyText:
    """Return how to install the package of a module: from a lock if an extra brings it."""
    extra = next((name for name, modules in EXTRAS.items() if module in modules), "")
    if extra:
        return LazyText(INSTALL_EXTRA, extra=extra)
    return LazyText(INSTALL_PACKAGE, package=module.replace("_", "-"))
