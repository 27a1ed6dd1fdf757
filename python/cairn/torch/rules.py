"""Reads torch's optimizers: which rule of the servers an optimizer is, and the numbers of its parameter groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from cairn import _native
from cairn.errors import InvalidArgument

# [key of a parameter group]: the name of the number on the servers, or two for a pair. In all groups: lr.
_PLAIN = {key: key for key in ("momentum", "dampening", "nesterov", "weight_decay", "maximize", "eps", "amsgrad", "alpha",
                               "centered", "lr_decay", "initial_accumulator_value", "rho", "momentum_decay",
                               "decoupled_weight_decay")}
_KEYS: dict[str, str | tuple[str, str]] = {**_PLAIN, "betas": ("beta1", "beta2")}
_OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad,
               torch.optim.Adadelta, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam)
# Options of how torch computes, which change no number.
_IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable"}


class Rule:
    """The rule of one optimizer. Raises InvalidArgument for a class or an option that the servers do not know."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        kind = type(optimizer)
        if kind not in _OPTIMIZERS:
            known = ", ".join(known.__name__ for known in _OPTIMIZERS)
            raise InvalidArgument(f"the servers do not know the rule of {kind.__module__}.{kind.__qualname__}; they know "
                                  f"torch.optim's {known}")
        self.name = f"torch.{kind.__name__}"
        for key in optimizer.defaults:
            if key not in _KEYS and key not in _IMPLEMENTATION and key != "lr":
                raise InvalidArgument(f"{kind.__name__}: the servers do not know the option {key!r}")
        # AdamW's decay is decoupled by its name.
        self._keys = [key for key in _KEYS if key in optimizer.defaults
                      and not (kind is torch.optim.AdamW and key == "decoupled_weight_decay")]

    def description(self, group: Mapping[str, Any]) -> _native.Optimizer:
        """The rule with the numbers of a parameter group."""
        described = _native.Optimizer()
        described.name = self.name
        described.hyperparameters = {**self.hyperparameters(group), "lr": float(group["lr"])}
        return described

    def learning_rate(self, group: Mapping[str, Any]) -> float | None:
        """None: that of the description, or its schedule's."""
        return float(group["lr"])

    def hyperparameters(self, group: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a parameter group but its learning rate."""
        numbers: dict[str, float] = {}
        for key in self._keys:
            names = _KEYS[key]
            if isinstance(names, tuple):
                numbers.update(zip(names, map(float, group[key])))
            else:
                numbers[names] = float(group[key])
        return numbers
