"""Converts Keras' description of an optimizer to the message OptimizerConfig of the servers."""

from __future__ import annotations

import numbers
from typing import Any

from cairn import _native
from cairn.errors import InvalidArgument


def optimizer_message(optimizer: object) -> dict[str, Any]:
    """The fields of OptimizerConfig. `optimizer`: a name ("Adam"); Keras' object {"class_name": ..., "config": {...}},
    whose learning_rate may be such an object of a schedule; or a Keras optimizer itself.

    Every entry of the config is taken or refused with a ValueError that names it. The servers know which
    hyperparameters an optimizer has, and refuse the others by name.
    """
    class_name, config = _class_and_config(optimizer, "optimizer")
    message: dict[str, Any] = {"name": class_name}
    rate = config.get("learning_rate")
    if _is_object(rate):
        message["learning_rate_schedule"] = _schedule(rate)
        config = {key: value for key, value in config.items() if key != "learning_rate"}
    elif callable(rate):
        raise InvalidArgument(f"optimizer {class_name}: learning_rate is a function ({rate!r}), which servers cannot call: "
                         "give a number or a Keras schedule")
    message["hyperparameters"], lists = _numbers(config, f"optimizer {class_name}")
    for key, values in lists.items():
        raise InvalidArgument(f"optimizer {class_name}: {key} is a list ({values}), must be a number")
    return message


def native_optimizer(optimizer: object) -> _native.Optimizer:
    """The optimizer for the extension module. Raises InvalidArgument as optimizer_message()."""
    message = optimizer_message(optimizer)
    native = _native.Optimizer()
    native.name = message["name"]
    native.hyperparameters = message["hyperparameters"]
    described = message.get("learning_rate_schedule")
    if described is not None:
        schedule = _native.LearningRateSchedule()
        schedule.name = described["name"]
        schedule.numbers = described["numbers"]
        schedule.boundaries = described.get("boundaries", [])
        schedule.values = described.get("values", [])
        native.schedule = schedule
    return native


def _is_object(value: object) -> bool:
    return isinstance(value, dict) or hasattr(value, "get_config")


def _class_and_config(value: Any, what: str) -> tuple[str, dict[str, Any]]:
    if isinstance(value, str):
        return value, {}
    if hasattr(value, "get_config"):  # a Keras optimizer or schedule
        return type(value).__name__, dict(value.get_config())
    if not isinstance(value, dict) or not isinstance(value.get("class_name"), str):
        raise InvalidArgument(f"{what}: expected a name or {{'class_name': ..., 'config': {{...}}}}, found {value!r}")
    unknown = value.keys() - {"class_name", "config", "module", "registered_name", "build_config", "shared_object_id"}
    if unknown:
        raise InvalidArgument(f"{what} {value['class_name']}: unknown key {min(unknown)!r}; hyperparameters belong in 'config'")
    config = value.get("config")
    if config is not None and not isinstance(config, dict):
        raise InvalidArgument(f"{what} {value['class_name']}: config must be a dict, found {config!r}")
    return value["class_name"], dict(config or {})


def _schedule(value: object) -> dict[str, Any]:
    class_name, config = _class_and_config(value, "learning_rate")
    scalars, lists = _numbers(config, f"learning_rate {class_name}")
    unknown = lists.keys() - {"boundaries", "values"}
    if unknown:
        raise InvalidArgument(f"learning_rate {class_name}: {min(unknown)} is a list, must be a number")
    return {"name": class_name, "numbers": scalars, **lists}


def _numbers(config: dict[str, Any], what: str) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Returns the scalars and the lists of numbers of a config, without None and the name."""
    import numpy as np  # late: the package imports quickly without it
    scalars: dict[str, float] = {}
    lists: dict[str, list[float]] = {}
    for key, value in config.items():
        if value is None or key == "name":
            continue
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1):
            lists[key] = [_number(entry, f"{what}: {key}") for entry in value]
        else:
            scalars[key] = _number(value, f"{what}: {key}")
    return scalars, lists


def _number(value: Any, what: str) -> float:
    import numpy as np
    if hasattr(value, "numpy") and not isinstance(value, np.ndarray):  # a tensor or a Keras variable
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (numbers.Real, np.bool_)):
        return float(value)
    if isinstance(value, str):  # a number in a configuration file
        try:
            return float(value)
        except ValueError:
            pass
    raise InvalidArgument(f"{what} is {value!r} ({type(value).__name__}), must be a number")
