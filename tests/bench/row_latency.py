#!/usr/bin/env python3
"""A step of a job with an embedding table on a slow network, against its computation and its exchange.

    tests/bench/row_latency.py [--bin build/release/bin] [--delay_ms 5] [--rate_mbit 1000] [--servers 2]
                               [--widths 64,2048] [--batch_size 256] [--ids 26] [--dim 16] [--steps 30] [--rounds 3]
                               [--staleness 1,2] [--sharding static]

One synchronous worker reaches each server through a proxy in this process: each direction delivers what it reads after
--delay_ms, at --rate_mbit. A step looks up --ids rows for each of --batch_size examples; a dense layer of each of
--widths computes on every row. Needs no root, and no files besides the programs.

  compute    forward pass, loss and backward pass of the model, in the same steps: medians
  exchange   what TCP takes through the same proxies for the bytes of a step of the exact job (--embedding_staleness
             0), up and then down; with several servers and two delays more, in which they agree on the round
  step       median time from one step to the next
  ratio      step / max(compute, exchange): median (range) over the rounds
  of the sum step / (compute + exchange): an exact step cannot be below 1, because its exchange follows its computation
  plan       step / the step that `cairn plan` expects for this network, data and computation: median (range)
"""

import argparse
import array
import collections
import contextlib
import json
import os
import random
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import zipfile

LIMIT = 300  # seconds a run may take
DIRECT, DELAYED = "127.0.0.1", "127.0.0.2"


class Link:
    """One direction of a server's network: all connections share its rate."""

    def __init__(self, delay, rate):
        self.delay, self.rate = delay, rate  # seconds, bytes/s
        self.free_at = 0.0
        self.bytes = 0
        self.lock = threading.Lock()

    def due(self, count):
        with self.lock:
            self.bytes += count
            self.free_at = max(self.free_at, time.monotonic()) + count / self.rate
            return self.free_at + self.delay


def carry(source, target, link):
    """Delivers what `source` sends, late."""
    waiting = collections.deque()
    changed = threading.Condition()

    def deliver():
        while True:
            with changed:
                while not waiting:
                    changed.wait()
                due, data = waiting.popleft()
                changed.notify_all()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
            except OSError:
                return

    threading.Thread(target=deliver, daemon=True).start()
    while True:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        with changed:
            while len(waiting) > 1000:
                changed.wait()
            waiting.append((link.due(len(data)), data))
            changed.notify_all()
        if not data:
            return


def proxy(port, up, down):
    """Passes connections to DELAYED:port on to DIRECT:port."""
    listener = socket.create_server((DELAYED, port))

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((DIRECT, port))
            except OSError:  # it does not listen yet, and the client tries again
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=carry, args=(client, server, up), daemon=True).start()
            threading.Thread(target=carry, args=(server, client, down), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def free_ports(count):
    """Ports that are free at both addresses, below those that outgoing connections get."""
    found = []
    while len(found) < count:
        port = random.randrange(15_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server((DIRECT, port)), socket.create_server((DELAYED, port)):
            found.append(port)
    return found


def npy(dtype, shape, values):
    header = f"{{'descr': '<{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values.tobytes()


def write_data(path, options):
    draw = random.Random(1)
    examples = options.batch_size * options.batches
    ids = array.array("q", (draw.randrange(options.rows) for _ in range(examples * options.ids)))
    labels = array.array("f", (draw.random() for _ in range(examples)))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x_train.npy", npy("i8", (examples, options.ids), ids))
        file.writestr("y_train.npy", npy("f4", (examples, 1), labels))


def write_model(path, options, width):
    def layer(class_name, name, after, **config):
        return {"class_name": class_name, "name": name, "config": {"name": name, **config},
                "inbound_nodes": [[[after, 0, 0, {}]]] if after else []}
    layers = [layer("InputLayer", "ids", "", batch_shape=[None, options.ids], dtype="int64"),
              layer("Embedding", "table", "ids", input_dim=options.rows, output_dim=options.dim),
              layer("Dense", "hidden", "table", units=width, activation="relu"),
              layer("GlobalAveragePooling1D", "mean", "hidden"),
              layer("Dense", "out", "mean", units=1)]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"class_name": "Functional",
                   "config": {"name": "m", "layers": layers, "input_layers": [["ids", 0, 0]], "output_layers": [["out", 0, 0]]},
                   "compile_config": {"optimizer": "sgd", "loss": "mean_squared_error"}}, file)


def spans(events, name, first):
    """The spans of this name in the steps from `first` on, as (begin, duration) in seconds."""
    found = sorted((event["ts"] / 1e6, event["dur"] / 1e6) for event in events if event.get("ph") == "X" and event["name"] == name)
    return found[first:]


def run(options, directory, staleness):
    """(the median step, the median computation, the bytes of a step up and down) of one run."""
    ports = free_ports(2 * options.servers)
    links = [Link(options.delay_ms / 1e3, options.rate_mbit * 1e6 / 8) for _ in range(2 * options.servers)]
    cluster = os.path.join(directory, "cluster.json")
    with open(cluster, "w", encoding="utf-8") as file:
        json.dump({"cluster": {"ps": [f"{DELAYED}:{port}" for port in ports[:options.servers]], "worker": [f"{DIRECT}:{free_ports(1)[0]}"]}}, file)
    trace = os.path.join(directory, "trace.json")
    tasks, listeners = [], []
    try:
        for server in range(options.servers):
            port, data_port = ports[server], ports[options.servers + server]
            up, down = links[2 * server:2 * server + 2]
            listeners += [proxy(port, up, down), proxy(data_port, up, down)]
            tasks.append(["cairn-ps", "--cluster", cluster, "--job_name=ps", f"--task_index={server}", f"--listen={DIRECT}:{port}",
                          f"--data_port={data_port}"])
        tasks.append(["cairn-worker", "--cluster", cluster, "--job_name=worker", "--task_index=0", "--model=model.json",
                      "--data_dir=data.npz", f"--batch_size={options.batch_size}", f"--train_steps={options.steps}",
                      "--sync_replicas", "--threads=1", "--novalidation", "--embedding_tables=all",
                      f"--embedding_staleness={staleness}", f"--data_sharding={options.sharding}", f"--trace_file={trace}"])
        programs = []
        for command in tasks:
            command[0] = os.path.join(os.path.abspath(options.bin), command[0])
            command.append("--transport=tcp")
            with open(os.path.join(directory, f"{len(programs)}.log"), "wb") as log:
                programs.append(subprocess.Popen(command, cwd=directory, stdout=log, stderr=log))
        try:
            for number, program in reversed(list(enumerate(programs))):
                if program.wait(LIMIT) != 0:
                    with open(os.path.join(directory, f"{number}.log"), encoding="utf-8") as log:
                        raise SystemExit(f"{tasks[number][0]} ended with {program.returncode}:\n{log.read()[-2000:]}")
        finally:
            for program in programs:
                program.kill()
    finally:
        for listener in listeners:
            listener.close()
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    steps = spans(events, "step", options.first)
    between = [after[0] - before[0] for before, after in zip(steps, steps[1:])]
    compute = sum(statistics.median(duration for _, duration in spans(events, name, options.first))
                  for name in ("forward", "loss", "backward"))
    # The first read of all variables is part of the bytes; it is small against the steps.
    busiest = [max(link.bytes for link in links[way::2]) / options.steps for way in (0, 1)]
    return statistics.median(between), compute, busiest


def receive(connection, count):
    while count > 0:
        received = connection.recv(min(count, 1 << 20))
        if not received:
            raise SystemExit("row_latency: a connection ended early")
        count -= len(received)


def exchange_seconds(options, up_bytes, down_bytes):
    """The median time of this exchange with all servers at once, through proxies, without Cairn."""
    ports = free_ports(options.servers)
    listeners = []
    clients = []
    try:
        for port in ports:
            server = socket.create_server((DIRECT, port))
            up, down = (Link(options.delay_ms / 1e3, options.rate_mbit * 1e6 / 8) for _ in range(2))
            listeners += [server, proxy(port, up, down)]

            def answer(server=server):
                connection, _ = server.accept()
                with connection:
                    for _ in range(options.steps):
                        receive(connection, up_bytes)
                        connection.sendall(bytes(down_bytes))

            threading.Thread(target=answer, daemon=True).start()
            clients.append(socket.create_connection((DELAYED, port)))
        seconds = []
        for _ in range(options.steps):
            began = time.monotonic()
            for client in clients:
                client.sendall(bytes(up_bytes))
            for client in clients:
                receive(client, down_bytes)
            seconds.append(time.monotonic() - began)
        return statistics.median(seconds[options.first:]) + (2 * options.delay_ms / 1e3 if options.servers > 1 else 0)
    finally:
        for end in clients + listeners:
            end.close()


def planned_seconds(options, directory, staleness, compute):
    """The step that `cairn plan` expects."""
    command = [os.path.join(os.path.abspath(options.bin), "cairn"), "plan", "model.json", f"--ps={options.servers}", "--data_dir=data.npz",
               f"--batch_size={options.batch_size}", "--embedding_tables=all", f"--embedding_staleness={staleness}",
               f"--link={options.rate_mbit:g}Mbit", f"--round_trip={2 * options.delay_ms:g}ms", f"--step_compute={compute:.6f}", "--json"]
    return json.loads(subprocess.run(command, cwd=directory, check=True, capture_output=True).stdout)["step_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--delay_ms", type=float, default=5)
    parser.add_argument("--rate_mbit", type=float, default=1000)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--widths", default="64,2048")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--ids", type=int, default=26)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--first", type=int, default=5, help="steps that are not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--staleness", default="1,2", help="values above 0 to compare with the exact job; may be empty")
    parser.add_argument("--sharding", choices=["static", "dynamic"], default="static")
    options = parser.parse_args()
    print(f"{'width':>6} {'staleness':>9} {'compute':>9} {'exchange':>9} {'step':>9} {'ratio':>6} {'range':>13} {'of the sum':>10} {'plan':>5} {'range':>13}")
    with tempfile.TemporaryDirectory() as directory:
        write_data(os.path.join(directory, "data.npz"), options)
        for width in (int(width) for width in options.widths.split(",")):
            write_model(os.path.join(directory, "model.json"), options, width)
            all_staleness = [0] + [int(staleness) for staleness in options.staleness.split(",") if staleness]
            results = {staleness: [] for staleness in all_staleness}
            for _ in range(options.rounds):
                for staleness in all_staleness:
                    step, compute, carried = run(options, directory, staleness)
                    if staleness == 0:
                        exchange = exchange_seconds(options, *map(int, carried))
                    results[staleness].append((compute, exchange, step, step / planned_seconds(options, directory, staleness, compute)))
            for staleness, rounds in results.items():
                compute, exchange, step, plan = (statistics.median(column) for column in zip(*rounds))
                ratios = sorted(s / max(c, x) for c, x, s, _ in rounds)
                plans = sorted(ratio for *_, ratio in rounds)
                print(f"{width:6} {staleness:9} {compute * 1e3:6.1f} ms {exchange * 1e3:6.1f} ms {step * 1e3:6.1f} ms "
                      f"{statistics.median(ratios):6.2f} {ratios[0]:5.2f} to {ratios[-1]:4.2f} {step / (compute + exchange):10.2f} "
                      f"{plan:5.2f} {plans[0]:5.2f} to {plans[-1]:4.2f}", flush=True)


if __name__ == "__main__":
    main()
