"""Trains a network of Keras with several seeds, for the scripts that compare Keras' results with Cairn's."""

import argparse
import pathlib

import keras


def options_of(description: str, epochs: int, batch_size: int) -> argparse.Namespace:
    """The command line: the directory of the data, and how to train."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch_size", type=int, default=batch_size)
    return parser.parse_args()


def train(network, train_set, test_set, options: argparse.Namespace, counted=None) -> None:
    """Trains the compiled models that `network()` makes, and prints what each reaches on the test set. `counted`: the
    targets of the test set that are no padding, which Keras' own metrics would count too."""
    for seed in range(1, options.seeds + 1):
        keras.utils.set_random_seed(seed)
        model = network()
        model.fit(*train_set, batch_size=options.batch_size, epochs=options.epochs, verbose=0)
        loss, accuracy = model.evaluate(*test_set, batch_size=options.batch_size, verbose=0)
        if counted is not None:
            scores = model.predict(test_set[0], batch_size=options.batch_size, verbose=0)
            accuracy = (scores.argmax(-1) == test_set[1])[counted].mean()
        print(f"seed {seed}: val_accuracy {accuracy:.4f} val_loss {loss:.4f}", flush=True)
