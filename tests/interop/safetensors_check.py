"""A trained model in PyTorch, by the safetensors package: by torch.sh, which installs what this imports.

    safetensors_check.py BIN_DIR SOURCE_DIR

Trains the convolutional network for a few steps, exports it, loads the file into PyTorch's layers, and compares what
they make of the test images with what Cairn does. A checkpoint's own files, one for each server, load too.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch

TOLERANCE = 2e-5  # float32 sums in other orders, of outputs around 1
IMAGES = 100


def run(*command):
    subprocess.run([str(word) for word in command], timeout=300, check=True, stdout=subprocess.DEVNULL)


def network(values):
    """deploy/examples/mnist_cnn.json of PyTorch's layers, on [n, 28, 28, 1]; Keras' kernels are [h, w, in, out]."""
    def conv(images, name):
        kernel = values[f"{name}/kernel"].permute(3, 2, 0, 1)
        return torch.relu(torch.nn.functional.conv2d(images, kernel, values[f"{name}/bias"]))

    def pool(images):
        return torch.nn.functional.max_pool2d(images, 2)

    def score(images):
        images = pool(conv(images.permute(0, 3, 1, 2), "conv2d"))
        images = conv(pool(conv(images, "conv2d_1")), "conv2d_2")
        rows = images.permute(0, 2, 3, 1).flatten(1)
        rows = torch.relu(rows @ values["dense/kernel"] + values["dense/bias"])
        return rows @ values["dense_1/kernel"] + values["dense_1/bias"]
    return score


def main():
    bin_dir, source = (pathlib.Path(path) for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        run(bin_dir / "cairn", "digits", directory / "data", "--train", 600, "--validation", IMAGES)
        run(bin_dir / "cairn", "train", source / "deploy/examples/mnist_cnn.json", "--data_dir", directory / "data", "--ps", 2,
            "--workers", 1, "--sync_replicas", "--train_steps", 20, "--threads", 1, "--train_dir", directory / "run",
            "--export_dir", directory / "out")
        images = directory / "data/t10k-images-idx3-ubyte"
        run(bin_dir / "cairn", "predict", directory / "run", images, "-o", directory / "outputs.npy")
        expected = np.load(directory / "outputs.npy")

        values = safetensors.torch.load_file(directory / "out/model.safetensors")
        raw = np.frombuffer(images.read_bytes(), "u1", offset=16).reshape(IMAGES, 28, 28, 1)
        outputs = network(values)(torch.from_numpy(raw / np.float32(255))).numpy()
        difference = float(np.abs(outputs - expected).max())
        print(f"{IMAGES} images in PyTorch: at most {difference:.2g} from Cairn's outputs")
        if outputs.shape != expected.shape or difference > TOLERANCE:
            sys.exit("PyTorch's outputs are not Cairn's")

        newest = re.fullmatch(r'model_checkpoint_path: "(.+)"', (directory / "run/checkpoint").read_text().strip())[1]
        files = sorted((directory / "run" / newest).glob("*.safetensors"))
        if len(files) != 2:
            sys.exit(f"a checkpoint of two servers has {files}")
        stored = {name: value for file in files for name, value in safetensors.torch.load_file(file).items()}
        whole = [name for name in values if name in stored and stored[name].shape == values[name].shape]
        if not whole or not all(torch.equal(stored[name], values[name]) for name in whole):
            sys.exit(f"of {sorted(values)} the checkpoint has {sorted(stored)}")
        print(f"{len(whole)} of {len(values)} variables are whole in the checkpoint, and the same")


if __name__ == "__main__":
    main()
