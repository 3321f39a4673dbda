"""Packages that are not always installed."""

import importlib
from typing import Any


def import_or_explain(module: str, caller: str, package: str = "") -> Any:
    """Return a module; raise `ImportError` that says what needs it, and how to get it.

    Args:
      module: Its name.
      caller: What needs it.
      package: What to install; the module itself if "".
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = package or module
        raise ImportError(f"{caller} needs {package}: pip install {package}.") from None
