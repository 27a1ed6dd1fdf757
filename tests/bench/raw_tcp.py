#!/usr/bin/env python3
"""Bytes both ways at once over TCP connections, and how long that takes: what link_bench.py holds a step against.

    tests/bench/raw_tcp.py listen BYTES CONNECTIONS   at each end that others connect to
    tests/bench/raw_tcp.py HOST,HOST... BYTES         at each of the others, which prints the seconds

BYTES go each way over each connection, of which there is one to each HOST. They begin when the listening end has all of
its own.
"""

import concurrent.futures
import socket
import sys
import threading
import time

PORT = 2222
LIMIT = 120  # seconds, for the other end to come and for all to pass


def accepted(count):
    with socket.create_server(("0.0.0.0", PORT), backlog=count) as server:
        server.settimeout(LIMIT)
        return [server.accept()[0] for _ in range(count)]


def connected(host):
    over = time.monotonic() + LIMIT
    while True:
        try:
            return socket.create_connection((host, PORT), timeout=1)
        except OSError:
            if time.monotonic() > over:
                raise
            time.sleep(0.05)


def receive(stream, count):
    piece = bytearray(min(count, 1 << 20))
    while count > 0:
        got = stream.recv_into(piece, min(count, len(piece)))
        if got == 0:
            raise SystemExit("the other end has gone")
        count -= got


def send(stream, count):
    data = bytes(min(count, 1 << 20))
    while count > 0:
        piece = min(count, len(data))
        stream.sendall(memoryview(data)[:piece])
        count -= piece


def exchange(stream, count):
    sender = threading.Thread(target=send, args=(stream, count), daemon=True)
    sender.start()
    receive(stream, count)
    sender.join()


def main():
    where, count = sys.argv[1], int(sys.argv[2])
    listens = where == "listen"
    streams = accepted(int(sys.argv[3])) if listens else [connected(host) for host in where.split(",")]
    for stream in streams:
        stream.settimeout(LIMIT)
    for stream in streams:  # that all are there
        if listens:
            stream.sendall(b"x")
        else:
            receive(stream, 1)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(streams)) as pool:
        for done in [pool.submit(exchange, stream, count) for stream in streams]:
            done.result()
    if not listens:
        print(time.monotonic() - began)
    for stream in streams:  # no end closes before the other one has received everything
        if listens:
            receive(stream, 1)
        else:
            stream.sendall(b"x")


if __name__ == "__main__":
    main()
