"""Which tensors can travel: servers and other workers compute in float32."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from cairn.errors import InvalidArgument

_CONVERTED = (torch.bfloat16, torch.float16)


def check_type(name: str, tensor: torch.Tensor) -> None:
    if torch.nn.parameter.is_lazy(tensor):
        raise InvalidArgument(f"{name!r} has no shape yet: call the model once, with an example, before distribute()")
    if tensor.is_meta:
        raise InvalidArgument(f"{name!r} is on the meta device and has no values: give it some before distribute()")
    if tensor.dtype != torch.float32 and tensor.dtype not in _CONVERTED:
        raise InvalidArgument(f"{name!r} is {tensor.dtype}, must be float32, bfloat16 or float16: servers compute in float32")


def check_separate(parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises InvalidArgument for parameters that share memory, which would be separate on the servers."""
    extents = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name) for name, tensor in parameters
                     if tensor.nbytes and tensor.is_contiguous())
    for (_, end, name), (begin, _, other) in zip(extents, extents[1:]):
        if begin < end:
            raise InvalidArgument(f"{name!r} and {other!r} share memory, but are two parameters: use one torch.nn.Parameter in "
                                  "both places")


def floating_buffers(model: torch.nn.Module, buffers: str) -> list[tuple[str, torch.Tensor]]:
    """The buffers that are averaged, such as those of BatchNorm, after a check of their types. buffers: of
    distribute()."""
    if buffers not in ("mean", "local"):
        raise InvalidArgument(f"buffers is {buffers!r}, must be 'mean' or 'local'")
    if buffers == "local":
        return []
    floating = [(name, tensor) for name, tensor in model.named_buffers() if tensor.is_floating_point()]
    for name, tensor in floating:
        check_type(name, tensor)
    return floating


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether memory that travels can be the tensor's own."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def is_on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Calls the method, and does not keep its object alive; does nothing when the object is gone. Hooks of tensors, and
    callbacks of the extension module, are in cycles that are never collected."""
    reference = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        bound = reference()
        return None if bound is None else bound(*args)
    return call
