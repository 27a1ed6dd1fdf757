"""Gradients of CUDA tensors on their way to the memory that travels: copied while backward goes on."""

from __future__ import annotations

import collections
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

_log = logging.getLogger("cairn")


class PinnedMemory:
    """Pins the memory of tensors, and keeps it allocated, as long as the object exists."""

    def __init__(self, tensors: Sequence[torch.Tensor], cuda: Any) -> None:
        self._tensors = list(tensors)
        self._runtime = cuda.cudart()
        self.pinned = all([self._pin(*extent) for extent in _extents(tensors)])

    def _pin(self, address: int, size: int) -> bool:
        if int(self._runtime.cudaHostRegister(address, size, 0)) != 0:
            return False
        weakref.finalize(self, self._runtime.cudaHostUnregister, address)
        return True


class DeviceCopies:
    """Copies between CUDA tensors and the memory of a session, which it pins. Gradients are copied on a stream of their
    own, beside the backward pass; each is announced when its copy is complete.

    One thread. `cuda`: torch.cuda, or what stands in for it.
    """

    def __init__(self, device: torch.device, memory: Sequence[torch.Tensor], announce: Callable[[int], None],
                 cuda: Any = torch.cuda) -> None:
        """`memory`: the session's arrays of gradients and values."""
        self._cuda = cuda
        self._announce = announce
        self._stream = cuda.Stream(device)
        self._pending: collections.deque[tuple[Any, int, torch.Tensor]] = collections.deque()
        self._values_copied: Any = None  # an event
        self.memory = PinnedMemory(memory, cuda)
        if not self.memory.pinned:
            _log.warning("the memory of gradients and values cannot be pinned: copies to and from %s wait", device)

    def pin(self, memory: Sequence[torch.Tensor]) -> PinnedMemory:
        """More memory, from which values are copied."""
        return PinnedMemory(memory, self._cuda)

    def send(self, index: int, gradient: torch.Tensor, memory: torch.Tensor) -> None:
        """Begins to copy the gradient of variable `index`. It must not change until it is announced."""
        self._stream.wait_stream(self._cuda.current_stream(gradient.device))
        with self._cuda.stream(self._stream):
            memory.copy_(gradient, non_blocking=self.memory.pinned)
            event = self._cuda.Event()
            event.record(self._stream)
        self._pending.append((event, index, gradient))
        self.announce_copied()

    def announce_copied(self) -> None:
        """Announces the gradients whose copies are complete, and waits for none."""
        while self._pending and self._pending[0][0].query():
            self._announce(self._pending.popleft()[1])

    def finish(self) -> None:
        """Waits for all copies, and announces the rest of the gradients. The session may then write to the memory of
        values again."""
        while self._pending:
            event, index, _ = self._pending.popleft()
            event.synchronize()
            self._announce(index)
        if self._values_copied is not None:
            self._values_copied.synchronize()

    def cancel(self) -> None:
        """Waits for all copies, and announces no gradient."""
        while self._pending:
            self._pending.popleft()[0].synchronize()
        if self._values_copied is not None:
            self._values_copied.synchronize()

    def values_installed(self) -> None:
        """Copies of values to the device have been begun, on its current stream."""
        self._values_copied = self._cuda.Event()
        self._values_copied.record(self._cuda.current_stream(self._stream.device))


def _extents(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """The addresses and sizes of the ranges of whole pages that contain the tensors, none of which overlap."""
    page = 4096
    pages = sorted((tensor.data_ptr() // page, -(-(tensor.data_ptr() + tensor.nbytes) // page)) for tensor in tensors if tensor.nbytes)
    merged: list[tuple[int, int]] = []
    for begin, end in pages:
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return [(begin * page, (end - begin) * page) for begin, end in merged]
