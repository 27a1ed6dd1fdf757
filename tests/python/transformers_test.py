#!/usr/bin/env python3
"""Hugging Face's Trainer with an optimizer on servers equals the Trainer in one process."""

import os
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import frameworks  # noqa: E402

frameworks.need("torch", "transformers", "accelerate")

import torch  # noqa: E402
import transformers  # noqa: E402

import cairn.torch  # noqa: E402

EXAMPLES, BATCH = 96, 16

torch.set_num_threads(1)


def make_model(seed=1):
    torch.manual_seed(seed)
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0))


def make_data():
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, 50, (EXAMPLES, 12), generator=generator)
    return [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": int(row[0]) % 3} for row in tokens]


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.01)


def fit(model, data, batch, optimizer, norm, folder):
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 2, 8)
    arguments = transformers.TrainingArguments(
        output_dir=folder, num_train_epochs=2, per_device_train_batch_size=batch, gradient_accumulation_steps=2,
        max_grad_norm=norm, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True, logging_strategy="no",
        train_sampling_strategy="sequential")
    trainer = transformers.Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, schedule))
    trainer.train()
    return trainer.state.global_step


def values(model):
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def work():
    """A worker of the test."""
    with cairn.init() as job, tempfile.TemporaryDirectory() as folder:
        cairn.hide_ranks()
        model = make_model(1 + job.worker)
        optimizer = cairn.torch.distribute(make_optimizer(model), model, job, max_grad_norm=0.5, eager=False)
        steps = fit(model, make_data()[job.worker::job.workers], BATCH // job.workers, optimizer, 0, folder)
        assert not torch.distributed.is_initialized() and steps == job.version
        frameworks.report(job.worker, values(model))


class WorkersTest(unittest.TestCase):

    def test_two_workers_equal_one_process_with_the_whole_batches(self):
        model = make_model()
        with tempfile.TemporaryDirectory() as folder:
            fit(model, make_data(), BATCH, make_optimizer(model), 0.5, folder)
        frameworks.check(self, frameworks.train(__file__), values(model), atol=1e-5)


if __name__ == "__main__":
    if frameworks.is_worker():
        work()
    else:
        unittest.main()
