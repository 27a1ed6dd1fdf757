"""Named variables on parameter servers, shared by any number of programs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cairn import _native
from cairn._options import addresses, connect_options

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_log = logging.getLogger("cairn")


class Variables:
    """Made by connect(). Works with servers that only store variables, and reads and overwrites those of a job.

    Every call has a time limit of its own and raises an Error that names the server that does not answer.
    """

    def __init__(self, native: _native.Variables) -> None:
        self._native = native

    def names(self) -> list[str]:
        """The names of all variables, sorted."""
        return [variable.name for variable in self._native.list()]

    def create(self, name: str, values: npt.ArrayLike) -> None:
        """Creates a variable of float32 with the shape of `values`, of at most 65,536 elements."""
        array = _float32(values)
        self._native.create(name, list(array.shape), array.reshape(-1))

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """The current values of a variable, in its shape."""
        shape = next((v.shape for v in self._native.list() if v.name == name), None)
        values: npt.NDArray[np.float32] = self._native.read(name)
        return values if shape is None else values.reshape(shape)

    def write(self, name: str, values: npt.ArrayLike) -> None:
        """Replaces all values of a variable."""
        self._native.write(name, _float32(values).reshape(-1))


def _float32(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    import numpy as np  # late: most programs train and never come here
    return np.ascontiguousarray(values, np.float32)


def connect(servers: str | Sequence[str], **connection: Any) -> Variables:
    """Reaches servers for their named variables. Arguments as those of cairn.init() that describe a connection."""
    return Variables(_native.Variables(connect_options(addresses(servers, "servers"), **connection), _log.info))
