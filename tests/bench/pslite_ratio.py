#!/usr/bin/env python3
"""Pushes and pulls by Cairn and by ps-lite (dmlc), in turn, one worker and one server on one host: ratios and bars.

    tests/bench/pslite_ratio.py [--bin build/release/bin] [--rounds 7] [--seconds 0.2] [--json RAW.jsonl]

Needs pslite_bench, which is built if CAIRN_PSLITE_DIR is set in CMake, and libjemalloc2. Each round starts
push_pull_bench and pslite_bench once for each case, in the opposite order every other time, each of which takes the
median of three turns; a ratio is of one round, and what is quoted is the median (least to most) of the rounds. ps-lite
is tuned: built with -O3, with a jemalloc that keeps what is freed and asks for huge pages, over all of its transports
(tcp; p3: TCP with a thread that sends; ipc: Unix sockets), and with all keys in one message or each in its own, several
in flight. Of these the one that counts is the one whose median is best. "untuned" is TCP with glibc's malloc, which
maps new memory for each message of 64 MiB. Ours is as users have it. pslite_bench.cc describes ps-lite's server.
"""

import argparse
import contextlib
import ctypes.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 120  # seconds that one program may take
PEERS = "memcpy,in-place,raw,gRPC,naive,push alone"  # push_pull_bench's own, which are not wanted here
TUNED = {"LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0,thp:always"}
SETTINGS = {"tcp": TUNED, "p3": {"DMLC_PS_VAN_TYPE": "p3", **TUNED}, "ipc": {"DMLC_LOCAL": "1", **TUNED}, "untuned": {}}
TCP, ALL = ("tcp", "p3"), ("tcp", "p3", "ipc")


@dataclass(frozen=True)
class Case:
    size: str
    variables: int
    in_flight: str = ""
    settings: tuple = ALL  # of ps-lite

    def flags(self, options):
        return [f"--size={self.size}", f"--variables={self.variables}", "--rounds=3", f"--seconds={options.seconds}"]


CASES = {
    "64 MiB": Case("64MiB", 1, settings=(*ALL, "untuned")),
    "64 of 1 MiB": Case("64MiB", 64, "4,16"),
    "1000 of 4 KiB": Case("4000KiB", 1000, "64,256"),
    "1 KiB": Case("1KiB", 1),
}


@dataclass(frozen=True)
class Bar:
    case: str
    way: str
    ours: str  # transport
    theirs: tuple  # settings
    bar: float
    measure: str = "gbps_median"
    apart: bool = False  # only a message for each variable
    their_cases: tuple = ()  # where not the same


def bars():
    for way in ("push", "pull"):
        yield Bar("64 MiB", way, "tcp", TCP, 2.5)
        yield Bar("64 MiB", way, "tcp", ("untuned",), 2.5)
        yield Bar("64 MiB", way, "shm", TCP, 3, their_cases=("64 MiB", "64 of 1 MiB"))
        for ours, theirs in (("tcp", TCP), ("shm", ALL)):
            yield Bar("64 of 1 MiB", way, ours, theirs, 1.1)
            yield Bar("1000 of 4 KiB", way, ours, theirs, 3)
            yield Bar("1000 of 4 KiB", way, ours, theirs, 3, apart=True)
            yield Bar("1 KiB", way, ours, theirs, 0.35, "p50_us")


def free_ports(count):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]


def measure_ours(options, case, raw):
    subprocess.run([os.path.join(options.bin, "push_pull_bench"), *case.flags(options), f"--without={PEERS}", f"--json={raw}"],
                   stdout=subprocess.DEVNULL, timeout=LIMIT, check=True)


def measure_theirs(options, case, setting, raw):
    ports = free_ports(3)
    environment = dict(os.environ, DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1", DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=ports[0],
                       DMLC_NODE_HOST="127.0.0.1", **SETTINGS[setting])
    command = [os.path.join(options.bin, "pslite_bench"), *case.flags(options), f"--limit={LIMIT}", f"--transport={setting}", f"--json={raw}"]
    command += [f"--in_flight={case.in_flight}"] if case.in_flight else []
    tasks = []
    try:
        for role, port in zip(("scheduler", "server", "worker"), ports):
            server = [f"--server_pid={tasks[1].pid}"] if role == "worker" else []
            tasks.append(subprocess.Popen(command + server, env=dict(environment, DMLC_ROLE=role, PORT=port), stdout=subprocess.DEVNULL))
        if tasks[2].wait(timeout=LIMIT) != 0:
            sys.exit(f"pslite_bench failed: {' '.join(command)}")
    finally:
        for task in tasks:
            task.kill()
            task.wait(timeout=LIMIT)
        for port in ports if setting == "ipc" else []:  # its sockets, which ps-lite leaves behind
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"/tmp/{port}")


def run_round(options, number, directory):
    """{case: {contender: its line}}"""
    lines = {}
    for name, case in CASES.items():
        runs = [(measure_ours, ())] + [(measure_theirs, (setting,)) for setting in case.settings]
        raw = os.path.join(directory, f"{number} {name}.jsonl")
        for measure, arguments in runs if number % 2 == 0 else reversed(runs):
            measure(options, case, *arguments, raw)
        with open(raw, encoding="utf-8") as file:
            text = file.read()
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(text)
        lines[name] = {line["name"]: line for line in map(json.loads, text.splitlines())}
    return lines


def median(rounds, case, name, measure):
    return statistics.median(found[case][name][measure] for found in rounds)


def middle(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def print_case(case, rounds):
    print(f"\n{case}: GB/s, p50 in us, processor time in s/GB of worker + server")
    for name in rounds[0][case]:
        rates = [found[case][name]["gbps_median"] for found in rounds]
        print(f"  {name:36} {middle(rates, 3):26} {median(rounds, case, name, 'p50_us'):10.1f} "
              f"{median(rounds, case, name, 'cpu_seconds_per_gb_here'):8.2f} + {median(rounds, case, name, 'cpu_seconds_per_gb_there'):.2f}")


def judge(bar, rounds):
    """Prints how we stand, and returns whether the bar is met."""
    less = bar.measure == "p50_us"
    ours = f"cairn {bar.ours} {bar.way}"
    theirs = [(case, name) for case in bar.their_cases or (bar.case,) for name in rounds[0][case]
              if name.startswith(tuple(f"pslite {setting} {bar.way}" for setting in bar.theirs)) and (not bar.apart or "flight" in name)]
    case, name = (min if less else max)(theirs, key=lambda one: median(rounds, *one, bar.measure))
    ratios = [found[bar.case][ours][bar.measure] / found[case][name][bar.measure] for found in rounds]
    met = statistics.median(ratios) <= bar.bar if less else statistics.median(ratios) >= bar.bar
    against = name if case == bar.case else f"{name}, {case}"
    print(f"  {bar.case:14} {ours:15} / {against:44} {'p50' if less else 'rate':5} {middle(ratios):22} "
          f"bar {'<=' if less else '>='} {bar.bar}{'' if met else ' MISSED'}")
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each contender in each round, at least")
    parser.add_argument("--json", help="a new file for all lines; wire/json_lines.h describes the format")
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.bin, "pslite_bench")):
        parser.error("pslite_bench is not built: give CMake -DCAIRN_PSLITE_DIR=DIR, a directory of ps-lite with build/libpslite.a")
    if ctypes.util.find_library("jemalloc") != TUNED["LD_PRELOAD"]:
        parser.error("jemalloc is missing (Debian: libjemalloc2): ps-lite would be measured untuned")
    if options.json and os.path.exists(options.json):
        parser.error(f"{options.json} exists")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and the tasks are ended
    rounds = []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(options.rounds):
            rounds.append(run_round(options, number, directory))
            print(f"round {number + 1}: load {os.getloadavg()[0]:.1f}", flush=True)
    for case in CASES:
        print_case(case, rounds)
    print("\nours / ps-lite's best:")
    missed = sum(not judge(bar, rounds) for bar in sorted(bars(), key=lambda bar: list(CASES).index(bar.case)))
    print(f"{missed} missed")


if __name__ == "__main__":
    main()
