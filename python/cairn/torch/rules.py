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
        if any(group.get("differentiable") for group in optimizer.param_groups):
            raise InvalidArgument(f"{kind.__name__}: differentiable=True needs the update in this process, but the servers make "
                                  "it")
        self._known: dict[int, tuple[list[Any], dict[str, float]]] = {}  # [id of a group]: its values, and as numbers
        # AdamW's decay is decoupled by its name.
        self._keys = [key for key in _KEYS if key in optimizer.defaults
                      and not (kind is torch.optim.AdamW and key == "decoupled_weight_decay")]

    def description(self, group: Mapping[str, Any]) -> _native.Optimizer:
        """The rule with the numbers of a parameter group."""
        described = _native.Optimizer()
        described.name = self.name
        described.hyperparameters = {**self.hyperparameters(group), "lr": base_rate(group)}
        return described

    def base_rate(self, group: Mapping[str, Any]) -> float | None:
        """That of the description. None: it has a schedule."""
        return base_rate(group)

    def learning_rate(self, group: Mapping[str, Any]) -> float | None:
        """None: that of the description, or its schedule's."""
        return float(group["lr"])

    def hyperparameters(self, group: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a parameter group but its learning rate. Not to be changed: it is the same object until one of
        them changes."""
        raw = [group[key] for key in self._keys]
        known = self._known.get(id(group))
        if known is not None and known[0] == raw:
            return known[1]
        numbers: dict[str, float] = {}
        fixed = True  # none of them can be changed in place
        for key, value in zip(self._keys, raw, strict=True):
            names = _KEYS[key]
            parts = value if isinstance(names, tuple) else (value,)
            numbers.update(zip(names if isinstance(names, tuple) else (names,), map(float, parts)))
            fixed = fixed and not any(isinstance(part, (list, torch.Tensor)) for part in (value, *parts))
        self._known.pop(id(group), None)
        if fixed:
            self._known[id(group)] = raw, numbers
        return numbers

    def state(self, slots: Mapping[str, torch.Tensor], updates: int, group: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The state of a parameter in torch's form, from the servers' slots and their number of updates."""
        if self.name == "torch.SGD":
            return dict(slots)
        state = {"step": torch.tensor(float(updates))}
        if self.name == "torch.NAdam":
            steps = torch.arange(1, updates + 1, dtype=torch.float64)
            momenta = group["betas"][0] * (1 - 0.5 * 0.96 ** (steps * group["momentum_decay"]))
            state["mu_product"] = momenta.prod().float()
        return {**state, **slots}


# [class of torch]: the optimizer of rows, and its names of the numbers. torch adds eps to the root; the optimizers of
# rows in _UNDER_THE_ROOT add it under the root.
_ROW_RULES: dict[type[torch.optim.Optimizer], tuple[str, dict[str, str]]] = {
    torch.optim.SGD: ("SGD", {"momentum": "momentum", "nesterov": "nesterov"}),
    torch.optim.Adam: ("Adam", {"beta1": "beta_1", "beta2": "beta_2", "eps": "epsilon"}),
    torch.optim.AdamW: ("Adam", {"beta1": "beta_1", "beta2": "beta_2", "eps": "epsilon"}),
    torch.optim.Adagrad: ("Adagrad", {"initial_accumulator_value": "initial_accumulator_value", "eps": "epsilon"}),
    torch.optim.RMSprop: ("RMSprop", {"alpha": "rho", "momentum": "momentum", "centered": "centered", "eps": "epsilon"}),
}
_UNDER_THE_ROOT = ("Adagrad", "RMSprop")
_LEAST_EPSILON = 1e-30  # under the root, of float32
# [name in lower case]: torch's defaults of a rule that a program names, where they differ from those of the servers.
_DEFAULTS = {"adagrad": {"initial_accumulator_value": 0.0, "epsilon": 1e-20}, "adam": {"epsilon": 1e-8},
             "rmsprop": {"rho": 0.99, "epsilon": 1e-16}}


def base_rate(group: Mapping[str, Any]) -> float:
    """The rate of a parameter group without a scheduler's factor: schedulers keep it in the group."""
    return float(group.get("initial_lr", group["lr"]))


def row_optimizer(table: str, optimizer: Any, lr: float | None, of_job: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer of a table's rows, as Keras' object. Raises InvalidArgument, which names the table.

    optimizer: a name, with torch's defaults, or such an object, with Keras'; None: the form of `of_job` for rows.
    lr: None: the rate of the first parameter group, unless the object has one.
    """
    if optimizer is None:
        name, config = _row_form(table, of_job)
    elif isinstance(optimizer, str):
        name, config = optimizer, dict(_DEFAULTS.get(optimizer.lower(), {}))
    elif isinstance(optimizer, Mapping) and isinstance(optimizer.get("class_name"), str):
        name, config = optimizer["class_name"], dict(optimizer.get("config") or {})
    else:
        raise InvalidArgument(f"table {table!r}: optimizer is {optimizer!r}, must be a name or "
                              "{'class_name': ..., 'config': {...}}")
    if lr is not None:
        config["learning_rate"] = float(lr)
    config.setdefault("learning_rate", base_rate(of_job.param_groups[0]))
    return {"class_name": name, "config": config}


def _row_form(table: str, of_job: torch.optim.Optimizer) -> tuple[str, dict[str, Any]]:
    kind = type(of_job)
    if kind not in _ROW_RULES:
        raise InvalidArgument(f"table {table!r}: {kind.__name__} has no form that updates single rows: give the table an "
                              "optimizer: SGD, Adam, Adagrad, RowWiseAdagrad, RMSprop or Ftrl")
    name, keys = _ROW_RULES[kind]
    numbers = Rule(of_job).hyperparameters(of_job.param_groups[0])
    config: dict[str, Any] = {keys[key]: value for key, value in numbers.items() if key in keys}
    for key, value in numbers.items():
        if key not in keys and value != 0:
            raise InvalidArgument(f"table {table!r}: {key} of {kind.__name__} has no form that updates single rows: give the "
                                  f"table an optimizer, for example optimizer={name!r}")
    if name in _UNDER_THE_ROOT:
        config["epsilon"] = max(config["epsilon"] ** 2, _LEAST_EPSILON)
    return name, config
