"""Which tensors can travel: servers and other workers compute in float32."""

from __future__ import annotations

import torch

from cairn.errors import InvalidArgument

_CONVERTED = (torch.bfloat16, torch.float16)


def check_type(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype != torch.float32 and tensor.dtype not in _CONVERTED:
        raise InvalidArgument(f"{name!r} is {tensor.dtype}, must be float32, bfloat16 or float16: servers compute in float32")


def floating_buffers(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The buffers that are averaged, such as those of BatchNorm, after a check of their types."""
    floating = [(name, tensor) for name, tensor in model.named_buffers() if tensor.is_floating_point()]
    for name, tensor in floating:
        check_type(name, tensor)
    return floating


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether memory that travels can be the tensor's own."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def is_on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda
