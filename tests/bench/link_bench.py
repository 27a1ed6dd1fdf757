#!/usr/bin/env python3
"""Clusters on links of a given rate: what they reach of what the links allow, and what `cairn plan` said before.

    tests/bench/link_bench.py MODEL DATA_DIR [--bin build/release/bin] [--link 100Mbit] [--clusters 1x1,1x2,2x2,2x4]
                              [--batch_size 8] [--steps 12] [--rounds 3] [--wire_dtype bfloat16] [--transport tcp]
                              [--congestion reno] [--trace DIR]

Each task of a cluster (PSxWORKERS; 0xWORKERS is all-reduce, without servers) runs in a network namespace of its own, on
a bridge; `tc` holds every link to the rate, each way. Needs root, iproute2 and a kernel with tbf. The computation of a
step is measured first, with as many workers at a time as the cluster has, since they share this machine's cores; choose
a batch so small that it is a minor part. A step is what each of --steps adds to a run of --first_steps, so that neither
the first round nor the end count. TCP's congestion control is this machine's, unless --congestion names another.
Printed for each cluster: the step as predicted and as measured, their ratio, the step over the larger of computation
and bytes / rate of the busiest link one way, and that link's goodput, both ways together, as a ratio of its rate. "of
raw TCP" is the step over the larger of computation and what raw_tcp.py takes for the same bytes in the same namespaces,
both ways at once; "hidden" the part of the communication, the busiest link's bytes up and then down at its rate, by
which a step is not longer than its computation. With --wire_dtype each cluster also runs with numbers of that type, in
turn; the last column is how many times as many steps it makes. With --trace each task leaves there the timeline of the
last run's --steps, for `cairn trace merge` and `show`.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile

NAME = "cairnlink"
LIMIT = 600  # seconds a run may take


def bits_per_second(link):
    return float(link[:-4]) * {"k": 1e3, "M": 1e6, "G": 1e9}[link[-4]]


def ip(*words):
    subprocess.run(["ip", *words], check=True, timeout=20)


@contextlib.contextmanager
def network(options, hosts):
    """A namespace and an address per host; both ends of its link send at most at --link."""
    link = options.link
    # A burst is what the link takes at once after a rest: as little as the kernel's clock of 250 Hz allows.
    burst = max(16 << 10, int(bits_per_second(link) / 8 / 250))
    shape = ["tbf", "rate", link.lower(), "burst", str(burst), "latency", "50ms"]
    switch = f"{NAME}-switch"
    made = []
    try:
        ip("netns", "add", switch)
        made.append(switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for index, host in enumerate(hosts):
            space = f"{NAME}-{host}"
            ip("netns", "add", space)
            made.append(space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"v{index}", "netns", switch)
            ip("-n", space, "addr", "add", f"10.78.0.{10 + index}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            if options.congestion:
                ip("netns", "exec", space, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={options.congestion}")
            ip("-n", switch, "link", "set", f"v{index}", "master", "br0", "up")
            for where, device in ((space, "eth0"), (switch, f"v{index}")):
                subprocess.run(["tc", "-n", where, "qdisc", "add", "dev", device, "root", *shape], check=True, timeout=20)
        yield {host: f"10.78.0.{10 + index}" for index, host in enumerate(hosts)}
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "del", space], check=False, timeout=20)


def program(options, name):
    return os.path.abspath(os.path.join(options.bin, name))


def step_seconds(options, *cluster):
    longer, shorter = (run_seconds(options, steps, *cluster) for steps in (options.first_steps + options.steps, options.first_steps))
    return (longer - shorter) / options.steps


def run_seconds(options, steps, servers, workers, wire_dtype="float32"):
    """The seconds of one run on links of the given rate, from the chief's summary. Each server and worker has its own
    link."""
    names = [f"ps{i}" for i in range(servers)] + [f"worker{i}" for i in range(workers)]
    with network(options, names) as address, tempfile.TemporaryDirectory() as directory:
        cluster = {"worker": [f"{address[f'worker{i}']}:2222" for i in range(workers)]}
        if servers > 0:
            cluster["ps"] = [f"{address[f'ps{i}']}:2222" for i in range(servers)]
        file = os.path.join(directory, "cluster.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump({"cluster": cluster}, out)
        summary = os.path.join(directory, "summary.json")
        tasks = []
        try:
            for name in names:
                job, index = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")):]
                command = ["ip", "netns", "exec", f"{NAME}-{name}", program(options, f"cairn-{job}"), "--cluster", file,
                           f"--job_name={job}", f"--task_index={index}", f"--transport={options.transport}"]
                if options.trace and steps > options.first_steps:
                    timeline = os.path.join(os.path.abspath(options.trace), f"{servers}x{workers}-{name}.json")
                    command += [f"--trace_file={timeline}", f"--trace_steps={options.first_steps + 1}:{steps}"]
                if job == "worker":
                    command += ["--model", os.path.abspath(options.model), "--data_dir", os.path.abspath(options.data_dir),
                                f"--batch_size={options.batch_size}", "--threads=1", "--novalidation", f"--train_steps={steps}"]
                    command += ["--sync_replicas", f"--wire_dtype={wire_dtype}"] if servers > 0 else ["--mode=allreduce"]
                    if index == "0":
                        command.append(f"--summary={summary}")
                with open(os.path.join(directory, f"{name}.log"), "wb") as log:
                    tasks.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=directory))
            for name, task in zip(names, tasks):
                if task.wait(LIMIT) != 0:
                    with open(os.path.join(directory, f"{name}.log"), encoding="utf-8") as log:
                        raise SystemExit(f"{name} ended with {task.returncode}:\n{log.read()[-2000:]}")
        finally:
            for task in tasks:
                task.kill()
        with open(summary, encoding="utf-8") as file:
            result = json.load(file)
    return result["seconds"]


def compute_seconds(options, workers):
    """The slowest median of so many workers that compute at the same time, each alone."""
    command = [program(options, "step_bench"), "--model", options.model, f"--batch_size={options.batch_size}", "--threads=1",
               "--compute_only"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(workers)]
    rates = [float(re.search(r"(\d+) images/s in the median", run.communicate(timeout=LIMIT)[0])[1]) for run in runs]
    return options.batch_size / min(rates)


def plan(options, servers, workers, compute):
    said = subprocess.run(
        [program(options, "cairn"), "plan", options.model, f"--ps={max(servers, 1)}", f"--workers={workers}", f"--link={options.link}",
         f"--step_compute={compute}s", "--json"], check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
    said = json.loads(said)
    if servers > 0:
        return said["step_seconds"], max(said["worker_link_bytes"], said["server_link_bytes"])
    return said["allreduce_step_seconds"], said["allreduce_link_bytes"]


def raw_seconds(options, servers, workers, link_bytes):
    """The time of raw TCP for the busiest link's bytes, both ways at once: a connection for each worker and server, all
    at the same time; without servers one connection."""
    end = os.path.join(os.path.dirname(os.path.abspath(__file__)), "raw_tcp.py")
    if servers == 0:
        servers = workers = 1
    count = str(link_bytes // max(servers, workers))
    listening, calling = [f"ps{i}" for i in range(servers)], [f"worker{i}" for i in range(workers)]
    with network(options, listening + calling) as address:
        everyone = ",".join(address[name] for name in listening)
        tasks = [subprocess.Popen(["ip", "netns", "exec", f"{NAME}-{name}", end, *words], stdout=subprocess.PIPE, text=True)
                 for names, words in ((listening, ["listen", count, str(workers)]), (calling, [everyone, count])) for name in names]
        try:
            said = [task.communicate(timeout=LIMIT)[0] for task in tasks]
        finally:
            for task in tasks:
                task.kill()
    if any(task.returncode != 0 for task in tasks):
        raise SystemExit("raw_tcp.py has failed")
    return max(float(seconds) for seconds in said[servers:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data_dir")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--link", default="100Mbit")
    parser.add_argument("--clusters", default="1x1,1x2,2x2,2x4")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--first_steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--transport", choices=["tcp", "grpc"], default="tcp")
    parser.add_argument("--congestion")
    parser.add_argument("--trace")
    parser.add_argument("--wire_dtype", choices=["bfloat16", "float16"])
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and the namespaces go
    sizes = [tuple(int(number) for number in cluster.split("x")) for cluster in options.clusters.split(",")]
    measured, shorter, raw = ({size: [] for size in sizes} for _ in range(3))
    compute = {size: compute_seconds(options, size[1]) for size in sizes}
    predicted = {size: plan(options, *size, compute[size]) for size in sizes}
    for _ in range(options.rounds):
        for size in sizes:
            raw[size].append(raw_seconds(options, *size, predicted[size][1]))
            measured[size].append(step_seconds(options, *size))
            print(f"{size[0]}x{size[1]}: {measured[size][-1] * 1e3:.0f} ms, raw TCP {raw[size][-1] * 1e3:.0f} ms", flush=True)
            if options.wire_dtype and size[0] > 0:
                shorter[size].append(measured[size][-1] / step_seconds(options, *size, options.wire_dtype))
    print(f"{'ps':>3} {'workers':>8} {'predicted':>10} {'measured':>10} {'range':>17} {'ratio':>6} {'of the larger':>14} {'of raw TCP':>10} {'busiest link':>13} {'compute':>10} {'hidden':>6}"
          + (f" {options.wire_dtype:>9}" if options.wire_dtype else ""))
    for size in sizes:
        (said, link_bytes), steps = predicted[size], measured[size]
        step = statistics.median(steps)
        # In a step the busiest link carries the bytes once each way: more than 1 where both ways are busy at once.
        one_way = link_bytes * 8 / bits_per_second(options.link)
        larger, used = max(one_way, compute[size]), 2 * one_way / step
        hidden = 1 - (step - compute[size]) / (2 * one_way)
        print(f"{size[0]:3} {size[1]:8} {said * 1e3:7.0f} ms {step * 1e3:7.0f} ms {min(steps) * 1e3:7.0f} to {max(steps) * 1e3:4.0f} "
              f"{step / said:6.2f} {step / larger:14.2f} {step / max(statistics.median(raw[size]), compute[size]):10.2f} {used:13.2f} "
              f"{compute[size] * 1e3:7.0f} ms {hidden:6.2f}"
              + (f" {statistics.median(shorter[size]):8.2f}x" if shorter[size] else ""))


if __name__ == "__main__":
    main()
