"""See client.py."""

from reference_client.client import Client, Error, Result, Rows, connect

__all__ = ["Client", "Error", "Result", "Rows", "connect"]
