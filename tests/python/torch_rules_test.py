#!/usr/bin/env python3
"""Torch's optimizers on the servers: 50 steps of each, with its options and with schedulers, equal those of torch."""

import unittest

import support
import torch
from support import assert_same, local

import cairn.torch
from cairn.torch.rules import Rule

STEPS = 50
optim, schedules = torch.optim, torch.optim.lr_scheduler

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD, momentum and dampening": lambda p: optim.SGD(p, 0.05, momentum=0.9, dampening=0.3, weight_decay=0.01),
    "SGD, Nesterov": lambda p: optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "SGD, maximize": lambda p: optim.SGD(p, 0.01, maximize=True),
    "Adam": lambda p: optim.Adam(p, 0.01),
    "Adam, AMSGrad and decay": lambda p: optim.Adam(p, 0.01, betas=(0.8, 0.9), eps=1e-5, weight_decay=0.05, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, 0.01, weight_decay=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, 0.001),
    "RMSprop, momentum": lambda p: optim.RMSprop(p, 0.001, alpha=0.9, momentum=0.5, weight_decay=0.01),
    "Adagrad": lambda p: optim.Adagrad(p, 0.05, lr_decay=0.01, weight_decay=0.01, initial_accumulator_value=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, 1),
    "Adamax": lambda p: optim.Adamax(p, 0.01),
    "NAdam": lambda p: optim.NAdam(p, 0.01),
    "RAdam": lambda p: optim.RAdam(p, 0.01),
}
SCHEDULES = {
    "cosine": lambda o: schedules.CosineAnnealingLR(o, STEPS),
    "steps": lambda o: schedules.MultiStepLR(o, [10, 30]),
    "warm-up": lambda o: schedules.LinearLR(o, 0.1, total_iters=20),
    "exponential": lambda o: schedules.ExponentialLR(o, 0.95),
    "one cycle, with momenta": lambda o: schedules.OneCycleLR(o, 0.05, total_steps=STEPS + 1),
}


def make_model():
    return support.make_model(norm=False)


def gradients():
    """[step, parameter]: given gradients, so that rounding errors do not grow from step to step through a network."""
    generator = torch.Generator().manual_seed(4)
    return [[torch.randn(p.shape, generator=generator) for p in make_model().parameters()] for _ in range(STEPS)]


def train(model, optimizer, scheduler=None, norm=None):
    for of_step in gradients():
        optimizer.zero_grad()
        sum((p * g).sum() for p, g in zip(model.parameters(), of_step)).backward()
        if norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        if scheduler:
            scheduler.step()


class RulesTest(unittest.TestCase):

    def check(self, make_optimizer, make_schedule=None, **options):
        reference, model = make_model(), make_model()
        optimizer = make_optimizer(reference)
        train(reference, optimizer, make_schedule and make_schedule(optimizer))
        with local() as job:
            optimizer = cairn.torch.distribute(make_optimizer(model), model, job, **options)
            train(model, optimizer, make_schedule and make_schedule(optimizer))
        assert_same(self, model, reference)

    def test_every_optimizer(self):
        for name, make in OPTIMIZERS.items():
            with self.subTest(name):
                self.check(lambda model, make=make: make(model.parameters()))

    def test_schedulers(self):
        for name, make_schedule in SCHEDULES.items():
            for rule in ("SGD, momentum and dampening", "AdamW"):
                with self.subTest(name, rule=rule):
                    self.check(lambda model, rule=rule: OPTIMIZERS[rule](model.parameters()), make_schedule)

    def test_parameter_groups(self):
        def make(model):
            first, *rest = model.parameters()
            return optim.AdamW([{"params": [first], "lr": 0.05, "weight_decay": 0.3, "betas": (0.7, 0.9)},
                                {"params": rest, "weight_decay": 0}], lr=0.01)
        self.check(make)

    def test_norms_are_limited_on_the_servers(self):
        reference, model = make_model(), make_model()
        train(reference, optim.AdamW(reference.parameters(), 0.01), norm=0.1)
        with local(ps=2) as job:
            train(model, cairn.torch.distribute(optim.AdamW(model.parameters(), 0.01), model, job, max_grad_norm=0.1))
        assert_same(self, model, reference, rtol=1e-4, atol=1e-6)  # torch divides by the norm plus 1e-6

    def test_unknown_rules_are_named(self):
        class Mine(optim.SGD):
            pass

        model = make_model()
        for make, words in ((lambda p: Mine(p, 0.1), "Mine"), (optim.LBFGS, "LBFGS"),
                            (lambda p: optim.SGD(p, 0.1, differentiable=True), "differentiable=True")):
            with local() as job, self.assertRaisesRegex(cairn.InvalidArgument, words):
                cairn.torch.distribute(make(model.parameters()), model, job)


class NumbersTest(unittest.TestCase):

    def test_numbers_follow_every_kind_of_change(self):
        optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
        group, rule = optimizer.param_groups[0], Rule(optimizer)
        group["betas"] = [0.5, 0.75]

        def check(**expected):
            self.assertEqual({key: value for key, value in rule.hyperparameters(group).items() if key in expected}, expected)
        check(beta1=0.5, beta2=0.75, eps=1e-8, amsgrad=0)
        group["betas"][0] = 0.25
        check(beta1=0.25)
        group["betas"] = (torch.tensor(0.5), 0.75)
        check(beta1=0.5)
        group["betas"][0].fill_(0.125)
        check(beta1=0.125)
        group["betas"] = (0.5, 0.75)
        check(beta1=0.5)
        self.assertIs(rule.hyperparameters(group), rule.hyperparameters(group))
        group["eps"], group["amsgrad"] = 0.5, True
        check(beta1=0.5, eps=0.5, amsgrad=1)


if __name__ == "__main__":
    unittest.main()
