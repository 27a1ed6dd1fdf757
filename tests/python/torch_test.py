#!/usr/bin/env python3
"""Torch's semantics with one worker: what a training loop may do, and what raises."""

import copy
import gc
import io
import os
import subprocess
import tempfile
import threading
import unittest
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import safetensors.torch
import support  # noqa: F401
import torch
from support import SECONDS, assert_same, local, loss_of, make_data, make_model
from torch.distributed import checkpoint
from torch.optim.optimizer import register_optimizer_step_post_hook

import cairn
import cairn.torch

nn, optim = torch.nn, torch.optim


def distribute(model, job, rate=0.1, **options):
    return cairn.torch.distribute(optim.SGD(model.parameters(), rate, momentum=0.9), model, job, **options)


class TorchTest(unittest.TestCase):

    def check(self, make, step, steps=8, **options):
        """`step(model, optimizer, i)` with torch and with Cairn gives the same parameters."""
        reference, model = make(), make()
        optimizer = optim.SGD(reference.parameters(), 0.1, momentum=0.9)
        for i in range(steps):
            step(reference, optimizer, i)
        with local(ps=2) as job:
            optimizer = distribute(model, job, **options)
            for i in range(steps):
                step(model, optimizer, i)
        assert_same(self, model, reference, atol=1e-6)
        return model

    def test_gradients_add_up_over_several_backwards(self):
        inputs, labels = make_data()

        def step(model, optimizer, i):
            optimizer.zero_grad()
            parts = 2 if i % 3 else 5  # not as many as in the step before
            for x, y in zip(inputs.chunk(parts), labels.chunk(parts)):
                (loss_of(model, x, y) / parts).backward()
            optimizer.step()
        self.check(lambda: make_model(norm=False), step)

    def test_zeroed_gradients_stay(self):
        inputs, labels = make_data()

        def step(model, optimizer, _):
            optimizer.zero_grad(set_to_none=False)
            loss_of(model, inputs, labels).backward()
            optimizer.step()
        self.check(make_model, step)

    def test_gradients_that_are_never_zeroed_add_up(self):
        inputs, labels = make_data()

        def step(model, optimizer, _):
            (0.1 * loss_of(model, inputs, labels)).backward()
            optimizer.step()
        self.check(make_model, step)

    def test_tied_parameters(self):
        def make():
            torch.manual_seed(3)
            model = nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 10), nn.Linear(10, 3))
            model[2].weight = model[0].weight
            return model
        inputs, labels = make_data()

        def step(model, optimizer, _):
            optimizer.zero_grad()
            loss_of(model, inputs, labels).backward()
            optimizer.step()
        model = self.check(make, step)
        self.assertIs(model[2].weight, model[0].weight)

    def test_checkpointed_segments(self):
        inputs, labels = make_data()
        for reentrant in (False, True):
            def step(model, optimizer, _, reentrant=reentrant):
                optimizer.zero_grad()
                hidden = inputs.clone().requires_grad_()
                for layer in model:  # twice in one segment, so that gradients come in two parts
                    hidden = torch.utils.checkpoint.checkpoint(layer, hidden, use_reentrant=reentrant)
                nn.functional.cross_entropy(hidden, labels).backward()
                optimizer.step()
            self.check(lambda: make_model(norm=False), step)

    def test_frozen_layers_stay_and_continue(self):
        inputs, labels = make_data()

        def step(model, optimizer, i):
            for parameter in model[0].parameters():
                parameter.requires_grad_(not 2 <= i < 5)
                if 2 <= i < 5:
                    parameter.grad = None
            optimizer.zero_grad()
            loss_of(model, inputs, labels).backward()
            optimizer.step()
        self.check(lambda: make_model(norm=False), step)

    def test_layers_frozen_from_the_start_can_be_unfrozen(self):
        inputs, labels = make_data()

        def make():
            model = make_model(norm=False)
            model[0].requires_grad_(False)
            return model

        def step(model, optimizer, i):
            model[0].requires_grad_(i >= 3)
            optimizer.zero_grad()
            loss_of(model, inputs, labels).backward()
            optimizer.step()
        self.check(make, step)

    def test_state_of_earlier_steps_is_refused(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        used = optim.Adam(model.parameters())
        loss_of(model, inputs, labels).backward()
        used.step()
        with local() as job:
            with self.assertRaisesRegex(cairn.InvalidArgument, "state of earlier steps"):
                cairn.torch.distribute(used, model, job)
            optimizer = distribute(model, job)
            with self.assertRaisesRegex(cairn.InvalidArgument, "state of earlier steps"):
                optimizer.load_state_dict(used.state_dict())

    def test_a_state_dict_can_be_loaded_again(self):
        inputs, labels = make_data()
        model = make_model(norm=False)
        with local() as job:
            optimizer = distribute(model, job)
            for _ in range(2):
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                state = optimizer.state_dict()  # also while a step is in progress
                optimizer.step()
            with self.assertRaisesRegex(cairn.InvalidArgument, "state of earlier steps"):
                optimizer.load_state_dict(state)
            optimizer.load_state_dict(optimizer.state_dict())  # as Accelerate does
            self.assertEqual(job.version, 2)

    def test_a_compiled_model_is_compiled_once(self):
        inputs, labels = make_data()
        compiled = []

        def backend(graph, example_inputs):
            compiled.append(graph)
            return graph.forward

        def step(model, optimizer, _):
            optimizer.zero_grad()
            loss_of(torch.compile(model, backend=backend), inputs, labels).backward()
            optimizer.step()
        torch._dynamo.reset()
        self.check(lambda: make_model(norm=False), step)
        self.assertEqual(len(compiled), 1)  # one graph for both models

    def test_torch_reads_a_consolidated_checkpoint(self):
        model = make_model(norm=False)
        with tempfile.TemporaryDirectory() as directory:
            with local(ps=2, train_dir=directory) as job:
                optimizer = distribute(model, job)
                loss_of(model, *make_data()).backward()
                optimizer.step()
            file = f"{directory}/whole/model.safetensors"
            os.mkdir(f"{directory}/whole")
            subprocess.run([f"{os.environ['CAIRN_BIN_DIR']}/cairn", "checkpoint", "consolidate", directory, "--output", file],
                           check=True, timeout=SECONDS)
            loaded = make_model(seed=5, norm=False).state_dict()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # there is one process
                checkpoint.load(loaded, storage_reader=checkpoint.HuggingFaceStorageReader(f"{directory}/whole"))
            for state in (loaded, safetensors.torch.load_file(file)):
                self.assertEqual(state.keys(), model.state_dict().keys())
                for name, values in model.state_dict().items():
                    self.assertTrue(torch.equal(state[name], values), name)

    def test_a_closed_job_is_freed_with_its_model(self):
        def train():
            model = make_model(norm=False)
            with local() as job:
                optimizer = distribute(model, job)
                loss_of(model, *make_data()).backward()
                optimizer.step()
            return weakref.ref(job), weakref.ref(optimizer), weakref.ref(model)
        references = train()
        gc.collect()
        self.assertEqual([reference() for reference in references], [None, None, None])

    def test_a_directory_is_free_when_the_job_is_closed(self):
        models = []  # which keep the values
        with tempfile.TemporaryDirectory() as directory:
            for _ in range(2):
                models.append(make_model(norm=False))
                with local(train_dir=directory) as job:
                    optimizer = distribute(models[-1], job)
                    loss_of(models[-1], *make_data()).backward()
                    optimizer.step()
                    version = job.version
        self.assertEqual(version, 2)

    def test_a_gradient_of_an_interrupted_step_counts_once(self):
        def train(job):
            model = nn.Linear(1, 1, bias=False)
            nn.init.zeros_(model.weight)
            with job:
                optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 1.0), model, job)
                for step in range(3):
                    if job.worker == 1 and step == 0:
                        started.wait(SECONDS)
                    model(torch.ones(1, 1)).sum().backward()
                    if job.worker == 0 and step == 0:
                        finish = job.steps.finish

                        def interrupted(begin):
                            job.steps.finish = finish
                            job.steps._unsettled = True
                            raise KeyboardInterrupt
                        job.steps.finish = interrupted
                        with self.assertRaises(KeyboardInterrupt):
                            optimizer.step()
                        started.set()
                        continue
                    optimizer.step()
                    optimizer.zero_grad()
                if job.worker == 0:
                    model(torch.ones(1, 1)).sum().backward()
                    optimizer.step()
                return model.weight.item(), job.version
        started = threading.Event()
        with cairn.local(workers=2, connect_timeout=SECONDS, step_timeout=SECONDS) as jobs, ThreadPoolExecutor(2) as pool:
            first, second = pool.map(train, jobs)
        self.assertEqual((first, second), ((-3.0, 3), (-3.0, 3)))

    def test_a_job_can_be_closed_within_a_step_and_the_model_used_afterwards(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        with local() as job:
            optimizer = distribute(model, job)
            for _ in range(2):
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                if job.version == 0:
                    optimizer.step()
        loss_of(model, inputs, labels).backward()

    def test_parameters_outside_the_optimizer_are_constant(self):
        model = make_model()
        before = copy.deepcopy(model[0].weight)
        inputs, labels = make_data()
        with local() as job:
            rest = [p for name, p in model.named_parameters() if name != "0.weight"]
            optimizer = cairn.torch.distribute(optim.SGD(rest, 0.1), model, job)
            for _ in range(3):
                loss_of(model, inputs, labels).backward()
                optimizer.step()
        self.assertTrue(torch.equal(before, model[0].weight))

    def test_a_parameter_without_part_in_the_loss_has_a_gradient_of_zeros(self):
        model = nn.ModuleList([nn.Linear(10, 3), nn.Linear(10, 3)])
        before = copy.deepcopy(model[1].weight)
        inputs, labels = make_data()
        with local() as job:
            optimizer = distribute(model, job)
            for _ in range(3):
                optimizer.zero_grad()
                loss_of(model[0], inputs, labels).backward()
                optimizer.step()
            self.assertTrue(torch.equal(before, model[1].weight))
            self.assertEqual(job.version, 3)

    def test_unused_parameters_can_be_skipped(self):
        inputs, labels = make_data()

        def make():
            model = nn.ModuleList([nn.Linear(10, 3), nn.Linear(10, 3), nn.Linear(10, 3)])
            for number, layer in enumerate(model):
                nn.init.constant_(layer.weight, 0.01 * number)
                nn.init.zeros_(layer.bias)
            return model

        def step(model, optimizer, i):
            optimizer.zero_grad()
            used = [model[0], model[1 + i // 3 % 2]]  # the other one has momentum that must not move it
            sum(loss_of(layer, inputs, labels) for layer in used).backward()
            optimizer.step()
        self.check(make, step, steps=12, skip_unused=True)

    def test_the_state_is_torchs(self):
        inputs, labels = make_data()
        rules = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "AdamW": {}, "RMSprop": {"centered": True, "momentum": 0.5},
                 "Adagrad": {}, "Adadelta": {}, "Adamax": {}, "NAdam": {}, "RAdam": {}}

        def train(model, optimizer, steps):
            for _ in range(steps):
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                optimizer.step()
        for name, options in rules.items():
            with self.subTest(name), local(ps=2) as job:
                reference, model = make_model(norm=False), make_model(norm=False)
                expected = getattr(optim, name)(reference.parameters(), 0.01, **options)
                rule = getattr(optim, name)(model.parameters(), 0.01, **options)
                optimizer = cairn.torch.distribute(rule, model, job)
                train(reference, expected, 5)
                train(model, optimizer, 5)
                found, wanted = optimizer.state_dict(), expected.state_dict()
                self.assertEqual(found["param_groups"], wanted["param_groups"])
                self.assertEqual(found["state"].keys(), wanted["state"].keys())
                for index, state in wanted["state"].items():
                    self.assertEqual(found["state"][index].keys(), state.keys())
                    for key, value in state.items():
                        torch.testing.assert_close(found["state"][index][key], torch.as_tensor(value), rtol=2e-3, atol=5e-6)
                resumed = make_model(norm=False)
                resumed.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
                again = getattr(optim, name)(resumed.parameters(), 0.01, **options)
                again.load_state_dict(found)
                train(resumed, again, 3)
                train(reference, expected, 3)
                assert_same(self, resumed, reference, atol=2e-6)
            self.assertEqual(optimizer.state_dict()["state"], {})  # the servers have ended

    def test_a_closure_computes_the_gradient(self):
        model = make_model()
        inputs, labels = make_data()
        with local() as job:
            optimizer = distribute(model, job)

            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, inputs, labels)
                loss.backward()
                return loss
            losses = [optimizer.step(closure).item() for _ in range(10)]
        self.assertLess(losses[-1], losses[0])

    def test_a_gradient_scaler_unscales_and_skips(self):
        inputs, labels = make_data()
        reference, model = make_model(norm=False), make_model(norm=False)

        def train(model, optimizer):
            scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=3)
            for i in range(8):
                optimizer.zero_grad()
                loss = loss_of(model, inputs, labels)
                scaler.scale(loss * float("inf") if i == 4 else loss).backward()
                scaler.step(optimizer)
                scaler.update()
            return scaler.get_scale()
        scale = train(reference, optim.SGD(reference.parameters(), 0.1))
        with local() as job:
            self.assertEqual(train(model, cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)), scale)
        assert_same(self, model, reference, atol=1e-6)

    def test_autocast(self):
        inputs, labels = make_data()

        def step(model, optimizer, _):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model, inputs, labels)
            loss.backward()
            optimizer.step()
        self.check(lambda: make_model(norm=False), step)

    def test_hooks_and_profilers_see_the_steps(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        seen = []
        with local() as job:
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)

            def step():
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                optimizer.step()
            step()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                step()
            names = {event.key for event in profile.key_averages()}
            self.assertLessEqual({"Optimizer.step#DistributedOptimizer.step", "Optimizer.zero_grad#DistributedOptimizer.zero_grad"}, names)
            hooks = [optimizer.register_step_pre_hook(lambda *_: seen.append("before")),
                     optimizer.register_step_post_hook(lambda *_: seen.append("after")),
                     register_optimizer_step_post_hook(lambda *_: seen.append("after all"))]
            step()
            for hook in hooks:
                hook.remove()
            step()
        self.assertEqual(seen, ["before", "after", "after all"])

    def test_parameters_of_16_bits(self):
        model = make_model(norm=False).bfloat16()
        inputs, labels = make_data()
        with local() as job:
            optimizer = cairn.torch.distribute(optim.AdamW(model.parameters(), 0.01), model, job)
            losses = []
            for _ in range(30):
                optimizer.zero_grad()
                loss = loss_of(model, inputs.bfloat16(), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        self.assertEqual(model[0].weight.dtype, torch.bfloat16)
        self.assertLess(losses[-1], 0.8 * losses[0])

    def test_most_gradients_leave_before_backward_ends(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        with local() as job:
            optimizer = distribute(model, job)
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                sent = [p.sent is not None for p in optimizer._trained]
                self.assertEqual(sent, [step > 0] * 4)
                optimizer.step()

    def test_values_are_in_place_and_saved_without_the_rest(self):
        model = make_model()
        with local() as job:
            optimizer = distribute(model, job)
            inputs, labels = make_data()
            loss_of(model, inputs, labels).backward()
            optimizer.step()
            alone, shared = io.BytesIO(), io.BytesIO()
            torch.save(copy.deepcopy(model).state_dict(), alone)
            torch.save(model.state_dict(), shared)
            self.assertLess(shared.tell(), alone.tell() + 2000)
            self.assertEqual([name for name, _ in model.named_parameters()], list(dict(make_model().named_parameters())))
            values = copy.deepcopy(model.state_dict())
        for name, tensor in model.state_dict().items():  # readable after the job
            self.assertTrue(torch.equal(tensor, values[name]))

    def test_a_kept_graph_is_refused_after_the_values_changed(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        with local() as job:
            optimizer = distribute(model, job)
            loss = loss_of(model, inputs, labels)
            loss.backward(retain_graph=True)
            optimizer.step()
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()

    def test_clipping_after_the_gradient_was_sent_raises_and_names_what_to_use(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        with local() as job:
            optimizer = distribute(model, job)
            for step in range(2):
                optimizer.zero_grad()
                (100 * loss_of(model, inputs, labels)).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                if step == 0:
                    optimizer.step()  # the first step sends late
            with self.assertRaisesRegex(cairn.Refused, r"'0.weight' was changed after.*max_grad_norm.*eager=False"):
                optimizer.step()
            optimizer.zero_grad()  # the loop goes on
            loss_of(model, inputs, labels).backward()
            optimizer.step()
            self.assertEqual(job.version, 2)

    def test_clipping_of_16_bit_gradients_raises_too(self):
        model = make_model(norm=False).bfloat16()
        inputs, labels = make_data()
        with local() as job:
            optimizer = distribute(model, job)
            for step in range(2):
                optimizer.zero_grad()
                (100 * loss_of(model, inputs.bfloat16(), labels)).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                if step == 0:
                    optimizer.step()
            with self.assertRaisesRegex(cairn.Refused, "was changed after"):
                optimizer.step()

    def test_clipping_is_right_with_late_gradients(self):
        inputs, labels = make_data()

        def step(model, optimizer, _):
            optimizer.zero_grad()
            loss_of(model, inputs, labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
        self.check(lambda: make_model(norm=False), step, eager=False)

    def test_values_written_by_the_program_raise(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        with local() as job:
            optimizer = distribute(model, job)
            loss_of(model, inputs, labels).backward()
            model.load_state_dict(make_model(seed=5, norm=False).state_dict())
            with self.assertRaisesRegex(cairn.Refused, "'0.weight'.*load values before distribute"):
                optimizer.step()

    def test_tensors_that_cannot_be_trained_are_named(self):
        model = make_model(norm=False)
        with local() as job:
            with self.assertRaisesRegex(cairn.InvalidArgument, "'0.weight' is torch.float64"):
                cairn.torch.distribute(optim.SGD(model.double().parameters(), 0.1), model, job)
            with self.assertRaisesRegex(cairn.InvalidArgument, "4 parameters that the model does not have"):
                cairn.torch.distribute(optim.SGD(make_model(norm=False).parameters(), 0.1), nn.Sequential(), job)
            with self.assertRaisesRegex(cairn.InvalidArgument, "mode is 'both'"):
                distribute(make_model(), job, mode="both")
            optimizer = distribute(make_model(), job)
            for examples in (-1, 0.5, True):
                with self.assertRaisesRegex(cairn.InvalidArgument, "examples is"):
                    optimizer.step(examples=examples)
            with self.assertRaisesRegex(cairn.Refused, "parameters of a job are fixed"):
                optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})

    def test_a_gradient_that_is_not_finite_ends_the_job_and_is_named(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        with self.assertRaisesRegex(cairn.Error, "0.weight|0.bias|2.weight|2.bias"):
            with local() as job:
                optimizer = distribute(model, job)
                (loss_of(model, inputs, labels) * float("nan")).backward()
                optimizer.step()


if __name__ == "__main__":
    unittest.main()
