#!/usr/bin/env python3
"""push_pull_bench over sizes, numbers of workers and servers, and encodings; writes a new file with lines of JSON.

    tests/bench/push_pull_sweep.py RAW.jsonl [--bin build/release/bin] [--rounds 3] [--seconds 0.1] [--limit 300]
                                   [--sizes 4KiB,...,256MiB] [--workers 2,4,8] [--ps 2,4] [--encodings bfloat16,...]

Not every combination: the sizes with 1 worker and 1 server, for all contenders; the rest at --fixed_size (64MiB), for
Cairn only: the numbers of workers with 1 server, of servers with 1 worker, the encodings with 1 and 1. A run that
needs more memory than is free, fails, or takes longer than --limit seconds is named at the end, with the reason; the
exit status is then 1. tests/bench/plot.py draws pictures of the file; wire/json_lines.h describes the lines.
"""

import argparse
import os
import subprocess
import sys
import time

SIZES = "4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB"
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
TRANSPORTS = 3
PEERS = "memcpy,in-place,raw,gRPC,naive,ucx,push alone"  # what workers, servers and encodings have nothing to do with


def words(text):
    return [word for word in text.split(",") if word]


def bytes_of(size):
    if size[-3:] not in UNITS or not size[:-3].isdigit():
        raise argparse.ArgumentTypeError(f"'{size}' is not a size as 64MiB: whole KiB, MiB or GiB")
    return int(size[:-3]) * UNITS[size[-3:]]


def sizes(text):
    for size in words(text):
        bytes_of(size)
    return words(text)


def numbers(text):
    if not all(word.isdigit() and int(word) > 0 for word in words(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers from 1 on, as 2,4,8")
    return [int(word) for word in words(text)]


def needed(size, workers):
    """Bytes, about: the peers' two ends; of each transport the servers' values and sums, and of each worker its
    gradient, its values and either of them once more on the way."""
    return bytes_of(size) * (4 + TRANSPORTS * (4 + 4 * workers))


def free():
    """Bytes of memory that programs can have without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


def plan(options):
    """(size, workers, servers, encoding, contenders left out), in the order of the runs."""
    fixed = options.fixed_size
    runs = [(size, 1, 1, "float32", "") for size in options.sizes]
    runs += [(fixed, workers, 1, "float32", PEERS) for workers in options.workers]
    runs += [(fixed, 1, servers, "float32", PEERS) for servers in options.ps]
    return runs + [(fixed, 1, 1, encoding, PEERS) for encoding in options.encodings]


def run(options, size, workers, servers, encoding, without):
    """Why it did not go well, or none."""
    if needed(size, workers) > 0.9 * free():
        return f"needs about {needed(size, workers) >> 20} MiB of memory, {free() >> 20} MiB are free"
    command = [os.path.join(options.bin, "push_pull_bench"), f"--size={size}", f"--workers={workers}", f"--ps={servers}",
               f"--wire_dtype={encoding}", f"--rounds={options.rounds}", f"--seconds={options.seconds}", f"--json={options.raw}"]
    try:
        ended = subprocess.run(command + ([f"--without={without}"] if without else []), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, timeout=options.limit, check=False)
    except subprocess.TimeoutExpired:
        return f"took longer than {options.limit} s"
    except OSError as error:
        return str(error)
    return None if ended.returncode == 0 else f"ended with {ended.returncode}: {ended.stderr.strip()[-500:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", help="the file; must not exist")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each contender in each round, at least")
    parser.add_argument("--limit", type=float, default=300, help="seconds that one run may take")
    parser.add_argument("--sizes", type=sizes, default=SIZES)
    parser.add_argument("--fixed_size", default="64MiB", help="of the runs that are about something else")
    parser.add_argument("--workers", type=numbers, default="2,4,8")
    parser.add_argument("--ps", type=numbers, default="2,4")
    parser.add_argument("--encodings", type=words, default="bfloat16,float16,int8,topk,onebit")
    options = parser.parse_args()
    try:
        bytes_of(options.fixed_size)
        open(options.raw, "x", encoding="utf-8").close()
    except (argparse.ArgumentTypeError, OSError) as error:
        parser.error(str(error))
    skipped = []
    for size, workers, servers, encoding, without in plan(options):
        name = f"size {size}, workers {workers}, ps {servers}, {encoding}"
        began = time.monotonic()
        reason = run(options, size, workers, servers, encoding, without)
        print(f"{name}: {reason or f'{time.monotonic() - began:.0f} s'}", flush=True)
        if reason is not None:
            skipped.append(f"{name}: {reason}")
    if skipped:
        sys.exit("\n".join(["not measured:"] + skipped))


if __name__ == "__main__":
    main()
