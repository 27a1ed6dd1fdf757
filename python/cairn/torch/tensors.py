"""Which tensors can travel: servers and other workers compute in float32."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from cairn.errors import InvalidArgument

_CONVERTED = (torch.bfloat16, torch.float16)


def check_type(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype != torch.float32 and tensor.dtype not in _CONVERTED:
        raise InvalidArgument(f"{name!r} is {tensor.dtype}, must be float32, bfloat16 or float16: servers compute in float32")


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
