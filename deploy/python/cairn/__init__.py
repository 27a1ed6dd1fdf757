"""Python client of Cairn's parameter servers: see cairn.client, and cairn.torch for PyTorch."""

from cairn.client import Client, Error, Result, Rows, connect

__all__ = ["Client", "Error", "Result", "Rows", "connect"]
