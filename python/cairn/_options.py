"""Options of connections, checked before anything is tried."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence

from cairn import _native
from cairn.errors import InvalidArgument


def seconds(value: float, name: str) -> datetime.timedelta:
    if not value > 0:
        raise InvalidArgument(f"{name} is {value!r}, must be a number of seconds above 0")
    return datetime.timedelta(seconds=value)


def connect_options(servers: str | Sequence[str], *, connect_timeout: float = 300,
                    tls: tuple[str, str, str] | None = None, job_token_file: str | os.PathLike[str] = "") -> _native.ConnectOptions:
    """`servers`: "host:port,host:port" or a list of addresses, in the order of their task index."""
    addresses = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [address.strip() for address in addresses]
    if not addresses or not all(addresses):
        raise InvalidArgument(f"servers: {servers!r} names no server, or an empty one")
    options = _native.ConnectOptions()
    options.servers = addresses
    options.connect_timeout = seconds(connect_timeout, "connect_timeout")
    if tls is not None:
        options.tls_cert, options.tls_key, options.tls_ca = map(str, tls)
    options.job_token_file = os.fspath(job_token_file)
    return options
