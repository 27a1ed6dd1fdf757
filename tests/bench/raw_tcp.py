#!/usr/bin/env python3
"""Bytes both ways at once over one TCP connection, and how long that takes: what link_bench.py holds a step against.

    tests/bench/raw_tcp.py listen BYTES       at one end
    tests/bench/raw_tcp.py HOST BYTES         at the other, which prints the seconds
"""

import socket
import sys
import threading
import time

PORT = 2222
LIMIT = 120  # seconds, for the other end to come and for all to pass


def connection(host):
    if host == "listen":
        with socket.create_server(("0.0.0.0", PORT)) as server:
            server.settimeout(LIMIT)
            return server.accept()[0]
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


def main():
    host, count = sys.argv[1], int(sys.argv[2])
    with connection(host) as stream:
        stream.settimeout(LIMIT)
        data = bytes(1 << 20)

        def send():
            left = count
            while left > 0:
                stream.sendall(memoryview(data)[:min(left, len(data))])
                left -= min(left, len(data))

        began = time.monotonic()
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        receive(stream, count)
        sender.join()
        if host == "listen":
            receive(stream, 1)
        else:
            print(time.monotonic() - began)
            stream.sendall(b"x")


if __name__ == "__main__":
    main()
