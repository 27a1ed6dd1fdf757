"""Exceptions of the package. All are Error; the message names the task, the variable and both values where they
differ."""

from __future__ import annotations


class Error(Exception):
    """A failed call. `code`: gRPC's code of the failure, for example "UNAVAILABLE"."""

    code = "UNKNOWN"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidArgument(Error, ValueError):
    """An argument, or the job that is described, is wrong: correct what the message names."""

    code = "INVALID_ARGUMENT"


class ConnectionLost(Error, ConnectionError):
    """A server could not be reached for the whole time limit."""


class StepTimeout(Error, TimeoutError):
    """No answer came within the time limit. The message names the tasks that were waited for."""


class MembershipLost(Error):
    """This worker or a server has lost its state, and recovery has failed."""


class Refused(Error):
    """The call does not fit the state of the job, or the servers do not allow it."""

    code = "FAILED_PRECONDITION"


class JobEnded(Error):
    """Training is over."""


class NoMemory(Error, MemoryError):
    """There is not enough memory, or no space on the disk."""


class DataDamaged(Error):
    """A file is damaged."""


# [gRPC's code]: its name, and the class of its errors.
_CODES: dict[int, tuple[str, type[Error]]] = {
    1: ("CANCELLED", Error),
    2: ("UNKNOWN", Error),
    3: ("INVALID_ARGUMENT", InvalidArgument),
    4: ("DEADLINE_EXCEEDED", StepTimeout),
    5: ("NOT_FOUND", Refused),
    6: ("ALREADY_EXISTS", Refused),
    7: ("PERMISSION_DENIED", Refused),
    8: ("RESOURCE_EXHAUSTED", NoMemory),
    9: ("FAILED_PRECONDITION", Refused),
    10: ("ABORTED", MembershipLost),
    11: ("OUT_OF_RANGE", JobEnded),
    12: ("UNIMPLEMENTED", Error),
    13: ("INTERNAL", Error),
    14: ("UNAVAILABLE", ConnectionLost),
    15: ("DATA_LOSS", DataDamaged),
    16: ("UNAUTHENTICATED", Refused),
}


def error_of(code: int, message: str) -> Error:
    """The exception for a status of the C++ library. Called by the extension module."""
    name, kind = _CODES.get(code, ("UNKNOWN", Error))
    return kind(message, name)


def code_number(error: Error) -> int:
    """gRPC's number of the error's code."""
    return next((number for number, (name, _) in _CODES.items() if name == error.code), 2)
