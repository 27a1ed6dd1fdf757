"""Imports of the frameworks that parts of the package are for. The package itself requires none of them."""

from __future__ import annotations

import importlib
from typing import Any


def framework(module: str, user: str, packages: str) -> Any:
    """The module. Raises ImportError that names `user`, the part of the package that needs it, and the packages to
    install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is installed, and something that it needs is not
        raise ImportError(f"{user} needs {module.partition('.')[0]}, which is not installed: pip install {packages}") from error
