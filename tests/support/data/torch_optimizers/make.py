"""Made steps.json, with torch 2.14.1: 50 steps of each optimizer and its options, in float32, one after the other on
one variable. A case has the optimizer's settings, those that change from step to step (also by OneCycleLR) as lists,
and the values after steps 1, 10 and 50, with the optimizer's state after the last.

torch_steps_test.cc has the same first values and gradients, which are exact in float32.
"""

import json
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
STEPS = 50
SHOWN = [1, 10, 50]

CASES = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "dampening": 0.25, "weight_decay": 0.05}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"betas": (0.8, 0.95), "eps": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"amsgrad": True, "betas": (0.9, 0.7)}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "betas": (0.8, 0.9), "weight_decay": 0.2, "eps": 0.001, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "momentum": 0.5, "centered": True, "eps": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {"momentum": 0.9}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 0.01,
                 "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.8, "eps": 0.001, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"betas": (0.8, 0.9), "eps": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"betas": (0.8, 0.9), "eps": 0.01, "weight_decay": 0.1, "momentum_decay": 0.5, "maximize": True}),
    ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1, "momentum_decay": 0.0}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.8, 0.9), "eps": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
]
CLIPPED = [("SGD", {"momentum": 0.9}, "global_clipnorm"), ("SGD", {"momentum": 0.9}, "clipvalue")]
ONE_CYCLE = [("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {"momentum": 0.5})]


def gradient(step):
    return torch.tensor([((7 * step + 5 * i) % 17 - 8 + i % 3) / 16 for i in range(6)])


def flat(settings):
    numbers = {}
    for name, value in settings.items():
        if name == "betas":
            numbers["beta1"], numbers["beta2"] = value
        else:
            numbers[name] = float(value)
    return numbers


def run(name, settings, clip=None, one_cycle=False):
    variable = torch.nn.Parameter(torch.tensor([1, -2, 0.5, 3, -0.25, 0.125]))
    optimizer = getattr(torch.optim, name)([variable], foreach=False, **settings)
    group = optimizer.param_groups[0]
    rate = group["lr"]
    if one_cycle:
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=10 * rate, total_steps=STEPS)
    changes, values = {}, {}
    for step in range(1, STEPS + 1):
        if not one_cycle:
            group["lr"] = rate * (1 if step <= 20 else 0.5 if step <= 35 else 2)
        changed = {key: group[key] for key in ("lr", "betas", "momentum") if key in group}
        for key, value in flat(changed if one_cycle else {"lr": group["lr"]}).items():
            changes.setdefault(key, []).append(value)
        variable.grad = gradient(step)
        if clip == "global_clipnorm":
            torch.nn.utils.clip_grad_norm_([variable], 0.5)
        elif clip == "clipvalue":
            torch.nn.utils.clip_grad_value_([variable], 0.25)
        optimizer.step()
        if one_cycle and step < STEPS:
            schedule.step()
        if step in SHOWN:
            values[step] = variable.tolist()
    numbers = flat(settings)
    if clip:
        numbers[clip] = 0.5 if clip == "global_clipnorm" else 0.25
    state = {key: value.tolist() for key, value in optimizer.state[variable].items() if value.dim() > 0}
    words = [name, *(key for key in numbers), *(["one cycle"] if one_cycle else [])]
    return {"name": ", ".join(words), "optimizer": f"torch.{name}", "hyperparameters": numbers, "changes": changes,
            "values": values, "state": state}


cases = [run(name, settings) for name, settings in CASES]
cases += [run(name, settings, clip=clip) for name, settings, clip in CLIPPED]
cases += [run(name, settings, one_cycle=True) for name, settings in ONE_CYCLE]
lines = ",\n".join(json.dumps(case) for case in cases)
(HERE / "steps.json").write_text(f"[\n{lines}\n]\n")
