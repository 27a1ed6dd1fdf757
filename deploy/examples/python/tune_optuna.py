"""Tunes a small network on handwritten digits: each trial is a job of its own, with its own server, and several trials
run at once, each on its own cores. Trials that are worse than the others at the same epoch end early.

    cairn digits digits                                               # or MNIST's files
    python3 tune_optuna.py --data_dir digits --trials 20 --groups 2

With --trial it trains one network, for tools that start trials themselves, such as Katib, and prints a line for each
epoch that ends in accuracy=0.97:

    python3 tune_optuna.py --data_dir digits --trial --rate 0.1 --hidden 64 --momentum 0.9
"""

import argparse
import datetime
import gzip
import multiprocessing
import os
import pathlib

import numpy as np
import torch

import cairn
import cairn.torch

BATCH = 64


def read(folder, name):
    """The array in a file of MNIST's format, which may be packed by gzip."""
    path = next(iter(sorted(pathlib.Path(folder).glob(f"{name}*"))), None)
    if path is None:
        raise SystemExit(f"there is no file {name} in {folder}: see cairn digits --help")
    data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape).copy())


def read_digits(folder):
    """(images, labels) for training and for validation."""
    return [(read(folder, f"{part}-images").flatten(1) / 255, read(folder, f"{part}-labels").long())
            for part in ("train", "t10k")]


def train(digits, epochs, *, rate, hidden, momentum):
    """Yields the accuracy on the validation data after each epoch."""
    (images, labels), (test_images, test_labels) = digits
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(images.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    with cairn.local() as job:
        optimizer = cairn.torch.distribute(torch.optim.SGD(model.parameters(), rate, momentum=momentum), model, job)
        for _ in range(epochs):
            for batch in torch.randperm(len(images)).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step(examples=len(batch))
            with torch.no_grad():
                yield (model(test_images).argmax(1) == test_labels).double().mean().item()


def tune(cores, options, storage):
    """Makes trials on these cores until the study has enough. The trial's server inherits the cores."""
    import optuna

    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    digits = read_digits(options.data_dir)

    def objective(trial):
        settings = {"rate": trial.suggest_float("rate", 1e-3, 1, log=True),
                    "hidden": trial.suggest_int("hidden", 16, 128, log=True),
                    "momentum": trial.suggest_float("momentum", 0, 0.95)}
        accuracy = 0.0
        for epoch, accuracy in enumerate(train(digits, options.epochs, **settings)):
            trial.report(accuracy, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    study = open_study(storage)
    study.optimize(objective, callbacks=[optuna.study.MaxTrialsCallback(options.trials, states=None)])


def open_study(storage):
    import optuna

    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    return optuna.create_study(study_name="digits", storage=journal, direction="maximize", load_if_exists=True,
                               pruner=optuna.pruners.MedianPruner(n_startup_trials=3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="the folder of the digits")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--groups", type=int, default=2, help="trials at once; each has an equal part of the cores")
    parser.add_argument("--study", default="study.journal", help="the file of the trials, which a later run continues")
    parser.add_argument("--trial", action="store_true", help="train one network with the settings that follow")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--momentum", type=float, default=0.9)
    options = parser.parse_args()
    if options.trial:
        settings = {"rate": options.rate, "hidden": options.hidden, "momentum": options.momentum}
        for accuracy in train(read_digits(options.data_dir), options.epochs, **settings):
            print(f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ} accuracy={accuracy:.4f}", flush=True)
        return
    cores = sorted(os.sched_getaffinity(0))
    groups = min(options.groups, len(cores))
    processes = [multiprocessing.get_context("spawn").Process(target=tune, args=(cores[i::groups], options, options.study))
                 for i in range(groups)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a group of cores failed")
    study = open_study(options.study)
    pruned = sum(trial.state.name == "PRUNED" for trial in study.trials)
    print(f"{len(study.trials)} trials, {pruned} of them ended early; best: accuracy={study.best_value:.4f} with "
          f"{study.best_params}")


if __name__ == "__main__":
    main()
