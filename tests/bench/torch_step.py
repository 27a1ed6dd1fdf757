#!/usr/bin/env python3
"""Images per second of training steps (forward and backward) in PyTorch, the peer of `step_bench --resident` on a GPU.

    tests/bench/torch_step.py [--json FILE] [--budget 150] [--only 'cnn batch 64']

Every network is tried as a careful user of PyTorch would run it: eager, as a CUDA graph captured by hand, and compiled
(mode reduce-overhead); images in both memory formats, of which the faster counts; cuDNN's own choice of algorithms by
measurement. Inputs and parameters lie on the device and stay the same; every step computes new gradients. Reduced
precision is autocast with float32 parameters. One line for each network, batch, precision and way:

    torch cnn batch 64 tf32 graphs: 1234567 images/s, 51.8 us/step
"""

import argparse
import contextlib
import json
import signal
import statistics
import time
from dataclasses import dataclass

WAYS = ("eager", "graphs", "compile")


@dataclass(frozen=True)
class Configuration:
    network: str
    batch: int
    precision: str
    ways: tuple = WAYS

    @property
    def name(self):
        return f"{self.network} batch {self.batch} {self.precision}"


# The most wanted first: what exceeds the time that was given is left out.
CONFIGURATIONS = (
    Configuration("cnn", 64, "tf32"),
    Configuration("cnn", 1024, "tf32"),
    Configuration("mlp4096", 4096, "bf16"),
    Configuration("resnet20", 64, "tf32"),
    Configuration("resnet20", 1024, "tf32"),
    Configuration("mlp4096", 512, "bf16"),
    Configuration("cnn", 1024, "bf16"),
    Configuration("mlp4096", 4096, "tf32", ("eager", "graphs")),
    Configuration("cnn", 64, "fp32", ("eager", "graphs")),
    Configuration("cnn", 64, "bf16", ("eager", "graphs")),
    Configuration("mlp4096", 4096, "fp16", ("eager", "graphs")),
    Configuration("resnet20", 1024, "bf16", ("eager", "graphs")),
)
CLASSES = 10
COMPILE_SECONDS = 40  # a configuration whose compilation takes longer goes without
WARM_UP_STEPS = 11
REPEAT_SECONDS = 0.1  # of one timed run of steps
REPEATS = 5


def make_network(name):
    """The network, and the shape of one of its inputs."""
    from torch import nn

    if name == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 64), nn.ReLU(),
            nn.Linear(64, CLASSES)), (1, 28, 28)
    if name == "mlp4096":
        hidden = [layer for _ in range(3) for layer in (nn.Linear(4096, 4096), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(4096, CLASSES)), (4096,)
    if name == "resnet20":
        return make_resnet20(), (3, 32, 32)
    raise ValueError(name)


def make_resnet20():
    """As deploy/examples/cifar_resnet20.json, without its penalties."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels, filters, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1)
            self.bn1 = nn.BatchNorm2d(filters)
            self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1)
            self.bn2 = nn.BatchNorm2d(filters)
            self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
            self.skip = nn.Conv2d(channels, filters, 1, stride) if stride != 1 else nn.Identity()

        def forward(self, x):
            y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
            return self.relu2(self.skip(x) + y)

    layers = [nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU()]
    channels = 16
    for filters in (16, 32, 64):
        for _ in range(3):
            layers.append(Block(channels, filters, 2 if filters != channels else 1))
            channels = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


@contextlib.contextmanager
def time_limit(seconds, what):
    def stop(*_):
        raise TimeoutError(f"{what} took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Training:
    """A network with one batch on the device. step() asks for one forward and backward pass."""

    def __init__(self, configuration, channels_last, device):
        import torch

        torch.manual_seed(1)
        network, shape = make_network(configuration.network)
        self.network = network.to(device)
        self.inputs = torch.rand((configuration.batch, *shape), device=device)
        if channels_last:
            self.network = self.network.to(memory_format=torch.channels_last)
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)
        self.targets = torch.arange(configuration.batch, device=device) % CLASSES
        self.autocast = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(configuration.precision)
        self.device = device

    def loss(self, inputs, targets):
        import torch

        with torch.autocast(self.device, dtype=self.autocast, enabled=self.autocast is not None):
            return torch.nn.functional.cross_entropy(self.network(inputs), targets)

    def step(self):
        self.network.zero_grad(set_to_none=True)
        self.loss(self.inputs, self.targets).backward()

    def captured(self):
        """step(), as one CUDA graph."""
        import torch

        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # capture wants it so
            for _ in range(WARM_UP_STEPS):
                self.step()
        torch.cuda.current_stream().wait_stream(aside)
        # Without gradients, backward makes them in the graph's own memory, and every replay writes them again.
        self.network.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss(self.inputs, self.targets).backward()
        return graph.replay

    def compiled(self):
        """step(), compiled."""
        import torch

        torch._dynamo.reset()  # else a second batch size is taken for a size that varies
        loss = torch.compile(self.loss, mode="reduce-overhead", dynamic=False)

        def step():
            torch.compiler.cudagraph_mark_step_begin()
            self.network.zero_grad(set_to_none=True)
            loss(self.inputs, self.targets).backward()

        with time_limit(COMPILE_SECONDS, "torch.compile"):
            for _ in range(WARM_UP_STEPS):
                step()
            torch.cuda.synchronize()
        return step


def seconds_of(step, steps):
    """The time of one step, by the device's clock, in a sequence of `steps`."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(steps):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / steps


class Way:
    """One way to run a configuration, ready to be timed again and again."""

    def __init__(self, name, step):
        self.name = name
        self.step_ = step
        seconds_of(step, WARM_UP_STEPS)
        self.steps = max(5, min(5000, int(REPEAT_SECONDS / seconds_of(step, WARM_UP_STEPS))))

    def seconds(self):
        """The time of a step: the median of several runs."""
        return statistics.median(seconds_of(self.step_, self.steps) for _ in range(REPEATS))


def set_precision(precision):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True


def prepare(configuration, device="cuda", log=print):
    """The ways that work, each in the memory format that is faster; those that do not are named with the reason."""
    set_precision(configuration.precision)
    formats = (False,) if configuration.network.startswith("mlp") else (False, True)
    ways, compile_format = [], False
    for name in configuration.ways:
        best = None  # (seconds, way, channels_last)
        for channels_last in (compile_format,) if name == "compile" else formats:
            try:
                training = Training(configuration, channels_last, device)
                step = {"eager": lambda t: t.step, "graphs": Training.captured, "compile": Training.compiled}[name](training)
                way = Way(name, step)
                seconds = way.seconds()
            except Exception as error:  # one way that fails is a finding; the others still count
                message = (str(error).splitlines() or [""])[0]
                log(f"torch {configuration.name} {name}{' channels last' if channels_last else ''}: "
                    f"failed: {type(error).__name__}: {message}", flush=True)
                continue
            if best is None or seconds < best[0]:
                best = (seconds, way, channels_last)
        if best is not None:
            ways.append(best[1])
            if name != "compile":
                compile_format = best[2]  # of graphs, the nearer to it, where both are tried
    return ways


def line(configuration, way, seconds):
    return f"torch {configuration.name} {way}: {configuration.batch / seconds:.0f} images/s, {seconds * 1e6:.1f} us/step"


def record(configuration, way, seconds):
    return {"network": configuration.network, "batch": configuration.batch, "precision": configuration.precision,
            "way": way, "images_per_second": configuration.batch / seconds, "microseconds_per_step": seconds * 1e6}


def description():
    import torch

    return f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}"


def selected(only):
    """The configurations whose name has one of the comma-separated parts in it."""
    return [c for c in CONFIGURATIONS if not only or any(part in c.name for part in only.split(","))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the results there too")
    parser.add_argument("--budget", type=float, default=150, help="seconds after which nothing more is begun")
    parser.add_argument("--only", default="", help="parts of the names of the configurations wanted, with commas")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        parser.exit(77, "torch_step.py: PyTorch finds no GPU here\n")
    print(description(), flush=True)
    results, begun = [], time.monotonic()
    for configuration in selected(options.only):
        if time.monotonic() - begun > options.budget:
            print(f"torch {configuration.name}: left out, the time is up", flush=True)
            continue
        for way in prepare(configuration):
            seconds = way.seconds()
            print(line(configuration, way.name, seconds), flush=True)
            results.append(record(configuration, way.name, seconds))
        torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"peer": description(), "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
