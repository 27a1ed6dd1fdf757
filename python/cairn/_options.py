"""Options of connections, checked before anything is tried."""

from __future__ import annotations

import datetime
import numbers
import os
from collections.abc import Sequence
from typing import Any

from cairn import _native
from cairn.errors import InvalidArgument


EXAMPLES_LIMIT = 2**32  # of a step


def seconds(value: float, name: str) -> datetime.timedelta:
    if not isinstance(value, numbers.Real) or not 0 < value <= datetime.timedelta.max.total_seconds():
        raise InvalidArgument(f"{name} is {value!r}, must be a number of seconds above 0")
    return datetime.timedelta(seconds=float(value))


def as_number(value: Any) -> Any:
    """`value` as a number of Python, also if it is an array of NumPy, JAX or torch without dimensions. None if it is no
    real number."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        try:
            value = value.item()
        except (TypeError, RuntimeError):  # JAX traces it, or it is on torch's meta device
            return None
    return value if isinstance(value, numbers.Real) and not isinstance(value, bool) else None


def whole(value: Any, name: str, least: int, limit: int = 2**63) -> int:
    """`value` as a number in [least, limit)."""
    found = as_number(value)
    if found is None or not least <= found < limit or int(found) != found:
        wanted = f"below {limit}" if found is not None and found >= limit else f"a whole number of at least {least}"
        raise InvalidArgument(f"{name} is {value!r}, must be {wanted}")
    return int(found)


def addresses(value: str | Sequence[str], name: str) -> list[str]:
    """`value`: "host:port,host:port" or a list of addresses, in the order of the tasks' indices."""
    if not isinstance(value, str) and not (isinstance(value, Sequence) and all(isinstance(one, str) for one in value)):
        raise InvalidArgument(f"{name} is {value!r}, must be 'host:port,host:port' or a list of addresses")
    found = [address.strip() for address in (value.split(",") if isinstance(value, str) else value)]
    if not found or not all(found):
        raise InvalidArgument(f"{name}: {value!r} has no address, or an empty one")
    for address in found:
        if ":" not in address:
            raise InvalidArgument(f"{name}: {address!r} has no port, must be 'host:port'")
    return found


def connect_options(servers: Sequence[str], *, connect_timeout: float = 300, tls: tuple[str, str, str] | None = None,
                    job_token_file: str | os.PathLike[str] = "") -> _native.ConnectOptions:
    options = _native.ConnectOptions()
    options.servers = list(servers)
    options.connect_timeout = seconds(connect_timeout, "connect_timeout")
    if tls is not None:
        if isinstance(tls, str) or len(tls) != 3:
            raise InvalidArgument(f"tls is {tls!r}, must be the paths of certificate, key and CA")
        options.tls_cert, options.tls_key, options.tls_ca = map(str, tls)
    options.job_token_file = os.fspath(job_token_file)
    return options
