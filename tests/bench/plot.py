#!/usr/bin/env python3
"""Pictures (SVG) of what push_pull_sweep.py measured.

    tests/bench/plot.py RAW.jsonl OUT_DIR

goodput_push, goodput_pull: GB/s against size, a panel for each transport with all contenders of it and those of memory
alone. cpu_push, cpu_pull: processor seconds for each GB, both sides together, in the same panels. workers, servers,
encodings: goodput against their number or kind, at the size with most of them. A picture without data is skipped with a
message. If a contender was measured twice with the same parameters, the later line counts. Needs only Python's standard
library.
"""

import json
import os
import re
import sys

from svg_chart import Panel, Point, Series, picture

FIELDS = {"name": str, "size_bytes": int, "workers": int, "ps": int, "rounds": int, "gbps_median": (int, float), "gbps_least": (int, float),
          "gbps_most": (int, float), "cpu_seconds_per_gb_here": (int, float), "cpu_seconds_per_gb_there": (int, float), "machine": dict,
          "load": (int, float), "date": str}
WAYS = ["push", "pull", "push-pull"]
FLOAT32 = (None, "float32")


def line_of(text):
    """Parses one line. ValueError describes the fault."""
    line = json.loads(text)
    if not isinstance(line, dict):
        raise ValueError("not a JSON object")
    for field, kind in FIELDS.items():
        if field not in line:
            raise ValueError(f"no field '{field}'")
        if not isinstance(line[field], kind) or isinstance(line[field], bool):
            raise ValueError(f"'{field}' is {json.dumps(line[field])}")
    for field in ("size_bytes", "workers", "ps"):
        if line[field] < 1:
            raise ValueError(f"'{field}' is {line[field]}")
    return line


def read(path):
    """The lines; of a contender that was measured twice, in its first line's place, the last."""
    lines = {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                try:
                    line = line_of(text)
                except ValueError as error:
                    sys.exit(f"{path}:{number}: {error}")
                lines[line["name"], line["size_bytes"], line["workers"], line["ps"], line.get("encoding")] = line
    except OSError as error:
        sys.exit(str(error))
    if not lines:
        sys.exit(f"{path}: no lines")
    return list(lines.values())


def way_of(line):
    """None for memory alone, which has no other end."""
    found = re.search(r"push-pull|push|pull", line["name"])
    return found.group() if found else None


def size_name(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def goodput(line, x):
    return Point(x, line["gbps_median"], line["gbps_least"], line["gbps_most"])


def processor(line, x):
    both = line["cpu_seconds_per_gb_here"] + line["cpu_seconds_per_gb_there"]
    return Point(x, both, both, both)


def curves(lines, to_point, to_x, style, joined=True):
    """One for each contender; a point that is not above 0 has no place on a logarithmic scale."""
    found = {}
    for line in lines:
        point = to_point(line, to_x(line))
        if point.low > 0:
            found.setdefault(line["name"], []).append((point, style(line)))
    return [Series(name, points[0][1], sorted(point for point, _ in points), joined) for name, points in found.items()]


def against_size(lines, way, to_point, y_label):
    """A panel for each transport."""
    lines = [line for line in lines if (line["workers"], line["ps"]) == (1, 1) and line.get("encoding") in FLOAT32 and way_of(line) in (way, None)]
    sizes = sorted({line["size_bytes"] for line in lines if way_of(line)})
    ticks = [(size, size_name(size)) for size in sizes[::2 if len(sizes) > 5 else 1]]
    transports = list(dict.fromkeys(line["transport"] for line in lines if "transport" in line))
    panels = []
    for transport in transports:
        here = [line for line in lines if line.get("transport") in (None, transport) and line["size_bytes"] in sizes]
        here.sort(key=lambda line: (way_of(line) is None, not line["name"].startswith("cairn")))
        series = curves(here, to_point, lambda line: line["size_bytes"], lambda line: line["name"].replace(line.get("transport", " "), ""))
        panels.append(Panel(transport, "size", y_label, ticks, series))
    return [panel for panel in panels if panel.series and len(ticks) > 1]


def against(lines, of, label, name_of=str):
    """A panel for push and for pull; x is `of(line)`, at the size with most values of it."""
    ours = [line for line in lines if "encoding" in line]
    kinds = {}
    for line in ours:
        kinds.setdefault(line["size_bytes"], []).append(of(line))
    size = max(kinds, key=lambda size: (len(set(kinds[size])), size), default=0)
    values = list(dict.fromkeys(kinds.get(size, [])))
    if len(values) < 2:
        return []
    numbers = isinstance(values[0], int)
    place = {value: value if numbers else 2.0**i for i, value in enumerate(sorted(values) if numbers else values)}
    ticks = [(at, name_of(value)) for value, at in place.items()]
    panels = []
    for way in WAYS:
        here = [dict(line, name=f"cairn {line['transport']}") for line in ours if way_of(line) == way and line["size_bytes"] == size]
        series = curves(here, goodput, lambda line: place[of(line)], lambda line: line["name"], numbers)
        if series:
            panels.append(Panel(f"{way}, {size_name(size)}", label, "GB/s of float32, all workers together", ticks, series))
    return panels


def pictures(lines):
    """(file name, title, panels)."""
    float32 = [line for line in lines if line.get("encoding") in FLOAT32]
    for way in WAYS[:2]:
        yield f"goodput_{way}", f"Goodput of one worker's {way}, one server", against_size(lines, way, goodput, "GB/s")
        yield (f"cpu_{way}", f"Processor time of one worker's {way}, both sides together",
               against_size(lines, way, processor, "seconds for each GB"))
    yield ("workers", "Goodput against the number of workers, one server",
           against([line for line in float32 if line["ps"] == 1], lambda line: line["workers"], "workers"))
    yield ("servers", "Goodput against the number of servers, one worker",
           against([line for line in float32 if line["workers"] == 1], lambda line: line["ps"], "servers"))
    yield ("encodings", "Goodput by --wire_dtype, one worker, one server",
           against([line for line in lines if (line["workers"], line["ps"]) == (1, 1)], lambda line: line.get("encoding"), "--wire_dtype"))


def caption(lines):
    machines = sorted({f"{line['machine'].get('processor')}, {line['machine'].get('cores')} cores" for line in lines})
    loads, rounds, dates = ([line[field] for line in lines] for field in ("load", "rounds", "date"))
    return (f"{'; '.join(machines)}; {', '.join(sorted(set(dates)))}; load before the runs {min(loads):.1f} to {max(loads):.1f}; "
            f"medians of {'/'.join(str(number) for number in sorted(set(rounds)))} rounds, thin lines from least to most")


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    lines, directory = read(sys.argv[1]), sys.argv[2]
    os.makedirs(directory, exist_ok=True)
    for name, title, panels in pictures(lines):
        if not panels:
            print(f"{name}.svg: not drawn, no lines for it")
            continue
        with open(os.path.join(directory, f"{name}.svg"), "w", encoding="utf-8") as file:
            file.write(picture(title, panels, caption(lines)))


if __name__ == "__main__":
    main()
