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


def addresses(value: str | Sequence[str], name: str) -> list[str]:
    """`value`: "host:port,host:port" or a list of addresses, in the order of the tasks' indices."""
    found = [address.strip() for address in (value.split(",") if isinstance(value, str) else value)]
    if not found or not all(found):
        what = {"servers": "server", "peers": "worker"}[name]
        raise InvalidArgument(f"{name}: {value!r} names no {what}, or an empty one")
    return found


def connect_options(servers: Sequence[str], *, connect_timeout: float = 300, tls: tuple[str, str, str] | None = None,
                    job_token_file: str | os.PathLike[str] = "") -> _native.ConnectOptions:
    options = _native.ConnectOptions()
    options.servers = list(servers)
    options.connect_timeout = seconds(connect_timeout, "connect_timeout")
    if tls is not None:
        options.tls_cert, options.tls_key, options.tls_ca = map(str, tls)
    options.job_token_file = os.fspath(job_token_file)
    return options
