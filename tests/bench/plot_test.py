#!/usr/bin/env python3
"""plot.py reads the lines that push_pull_bench writes."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import plot  # noqa: E402
import svg_chart  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
KIB = 1 << 10


def line(name, size=4 * KIB, **fields):
    whole = {"name": name, "size_bytes": size, "workers": 1, "ps": 1, "rounds": 3, "gbps_median": 2.0, "gbps_least": 1.0, "gbps_most": 4.0,
             "p50_us": 10.0, "p99_us": 20.0, "cpu_seconds_per_gb_here": 0.25, "cpu_seconds_per_gb_there": 0.5,
             "machine": {"processor": "A & B <C>", "cores": 2}, "load": 0.5, "date": "2026-11-23"}
    return dict(whole, **fields)


def ours(transport, way, encoding="float32", **fields):
    special = "" if encoding == "float32" else f"{encoding} "
    return line(f"cairn {transport} {special}{way}", transport=transport, encoding=encoding, **fields)


class PlotTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.raw, self.out = os.path.join(directory.name, "raw.jsonl"), os.path.join(directory.name, "out")

    def plot(self, lines):
        """The output of plot.py for `lines`, which are text or become JSON."""
        with open(self.raw, "w", encoding="utf-8") as file:
            file.writelines((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines)
        printed = io.StringIO()
        with mock.patch.object(sys, "argv", ["plot.py", self.raw, self.out]), contextlib.redirect_stdout(printed):
            plot.main()
        return printed.getvalue()

    def texts(self, name):
        root = xml.etree.ElementTree.parse(os.path.join(self.out, name)).getroot()
        return [element.text for element in root.iter(SVG + "text")]

    def test_every_contender_is_in_the_legend(self):
        names = ["memcpy", "raw tcp push", "raw tcp push, kept", "gRPC stream tcp push"]
        lines = [line(name, size, **({} if name == "memcpy" else {"transport": "tcp"})) for name in names for size in (4 * KIB, 64 * KIB)]
        lines += [ours(transport, "push", size=size) for transport in ("tcp", "shm") for size in (4 * KIB, 64 * KIB)]
        self.plot(lines)
        for picture in ("goodput_push.svg", "cpu_push.svg"):
            texts = self.texts(picture)
            for name in names + ["cairn tcp push", "cairn shm push"]:
                self.assertEqual(texts.count(name), 2 if name == "memcpy" else 1, (picture, name))
            self.assertIn("4 KiB", texts)
            self.assertIn("64 KiB", texts)

    def test_counts_and_encodings_have_pictures_of_their_own(self):
        lines = [ours("shm", "push", workers=workers) for workers in (1, 2, 8)] + [ours("shm", "push", "int8")]
        said = self.plot(lines)
        self.assertEqual(sorted(os.listdir(self.out)), ["encodings.svg", "workers.svg"])
        self.assertIn("servers.svg: not drawn", said)
        for tick in ("1", "2", "8", "cairn shm"):
            self.assertIn(tick, self.texts("workers.svg"))
        for tick in ("float32", "int8", "cairn shm"):
            self.assertIn(tick, self.texts("encodings.svg"))

    def test_the_later_of_two_lines_counts(self):
        self.plot([ours("shm", "push"), ours("shm", "push", workers=2, gbps_most=7000.0), ours("shm", "push", workers=2)])
        self.assertNotIn("10000", self.texts("workers.svg"))

    def test_a_line_that_is_wrong_is_named_with_its_number(self):
        good = ours("tcp", "push")
        short = {field: value for field, value in good.items() if field != "gbps_median"}
        for bad, reason in (("{", "Expecting"), ("[]", "not a JSON object"), (short, "no field 'gbps_median'"),
                            (dict(good, workers="2"), "'workers' is \"2\""), (dict(good, size_bytes=0), "'size_bytes' is 0")):
            with self.subTest(reason), self.assertRaises(SystemExit) as ended:
                self.plot([good, bad])
            self.assertIn(f"{self.raw}:2: ", str(ended.exception.code))
            self.assertIn(reason, str(ended.exception.code))


class AxisTest(unittest.TestCase):
    def test_ticks_enclose_what_is_drawn(self):
        self.assertEqual(svg_chart.y_ticks(0.3, 4), [0.2, 0.5, 1, 2, 5])
        self.assertEqual(svg_chart.y_ticks(1, 10), [1, 2, 5, 10])
        self.assertEqual(svg_chart.y_ticks(0.003, 200), [0.001, 0.01, 0.1, 1, 10, 100, 1000])
        self.assertEqual(svg_chart.y_ticks(2, 2), [2, 5])

    def test_a_scale_is_logarithmic(self):
        across = svg_chart.scale(1, 16, 80)
        self.assertEqual([round(across(value), 6) for value in (1, 2, 4, 16)], [0, 20, 40, 80])


if __name__ == "__main__":
    unittest.main()
