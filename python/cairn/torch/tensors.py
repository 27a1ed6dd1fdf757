"""Which tensors can travel: servers and other workers compute in float32."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cairn.errors import InvalidArgument

_log = logging.getLogger("cairn")

_CONVERTED = (torch.bfloat16, torch.float16)


def check_type(name: str, tensor: torch.Tensor) -> None:
    if torch.nn.parameter.is_lazy(tensor):
        raise InvalidArgument(f"{name!r} has no shape yet: call the model once, with an example, before distribute()")
    _check_has_values(repr(name), tensor)
    if tensor.dtype != torch.float32 and tensor.dtype not in _CONVERTED:
        raise InvalidArgument(f"{name!r} is {tensor.dtype}, must be float32, bfloat16 or float16: servers compute in float32")


def _check_has_values(what: str, tensor: torch.Tensor) -> None:
    if tensor.is_meta:
        raise InvalidArgument(f"{what} is on the meta device and has no values: give it some before distribute()")


def check_memory(parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Raises InvalidArgument for parameters that share memory, which would be separate on the servers."""
    extents = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name) for name, tensor in parameters
                     if tensor.nbytes and tensor.is_contiguous())
    for (_, end, name), (begin, _, other) in zip(extents, extents[1:]):
        if begin < end:
            raise InvalidArgument(f"{name!r} and {other!r} share memory, but are two parameters: use one torch.nn.Parameter in "
                                  "both places")


def floating_buffers(model: torch.nn.Module, buffers: str) -> list[tuple[str, torch.Tensor]]:
    """The buffers that are averaged, such as those of BatchNorm, after a check of their types. buffers: of
    distribute(). Not those with infinities, such as masks of attention: a mean needs finite numbers. A buffer with NaN
    is averaged, which raises: it is a fault of the model, not a mask."""
    if buffers not in ("mean", "local"):
        raise InvalidArgument(f"buffers is {buffers!r}, must be 'mean' or 'local'")
    if buffers == "local":
        return []
    averaged, local = [], []
    for name, tensor in model.named_buffers():
        if not tensor.is_floating_point():
            continue
        _check_has_values(f"buffer {name!r}", tensor)
        try:
            check_type(name, tensor)
        except InvalidArgument as error:
            raise InvalidArgument(f"buffer {error}; distribute(buffers='local') leaves the buffers to each worker") from None
        if bool(torch.isinf(tensor).any()):
            local.append(repr(name))
        else:
            averaged.append((name, tensor))
    if local:
        _log.warning("buffers with infinities are not averaged, and each worker keeps its own: %s; they must be the same "
                     "buffers on all workers, or use distribute(buffers='local')", ", ".join(local))
    return averaged


def check_modules(model: torch.nn.Module) -> None:
    """Raises InvalidArgument for a module that writes into its parameters in each forward pass."""
    for name, module in model.named_modules():
        if getattr(module, "max_norm", None) is not None and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            raise InvalidArgument(f"the embedding {name!r} has max_norm, which writes into its weight in forward(), but the "
                                  "values are those of all workers: use max_norm=None")


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
