"""Line charts side by side as one SVG, by the standard library only, readable on light and dark pages.

    picture("Goodput", [Panel("push", "size", "GB/s", ticks, series)], "where and when")

Values lie on logarithmic scales, so they must be above 0.
"""

import collections
import math
from xml.sax.saxutils import escape

# `ticks`: (x, label) in the order of x. `series`: name to points; of equal `style` are drawn alike in all panels.
Panel = collections.namedtuple("Panel", "title x_label y_label ticks series")
Series = collections.namedtuple("Series", "name style points joined")
Point = collections.namedtuple("Point", "x y low high")  # low to high: a thin line behind the point

WIDTH, HEIGHT = 300, 250  # of what a panel's axes enclose
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 76, 44
ROW = 17  # of the legend
COLOURS = ["#1f77d0", "#e08214", "#1a9e77", "#b86fc6", "#d6453d", "#8a8a8a", "#b59b00"]
DASHES = ["", "6 3", "2 3", "8 3 2 3", "4 2", "", "2 3"]
MARKS = ["circle", "square", "diamond", "triangle", "square", "circle", "diamond"]
STYLE = """
  svg { background: #ffffff; font: 12px sans-serif; }
  text { fill: #1c1e21; } .title { font-size: 16px; font-weight: bold; } .panel { font-weight: bold; } .small { font-size: 11px; }
  .grid { stroke: #d8dbdf; } .frame { stroke: #6b7078; fill: none; } .page { fill: #ffffff; }
  .line { fill: none; stroke-width: 2; } .range { stroke-width: 1; opacity: 0.5; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14171b; } text { fill: #e4e6ea; } .grid { stroke: #34393f; } .frame { stroke: #8b9097; } .page { fill: #14171b; }
  }
"""


def scale(least, most, length):
    """Where a value lies on a logarithmic scale of that length."""
    low, high = math.log(least), math.log(most)
    return lambda value: length * (math.log(value) - low) / (high - low) if high > low else length / 2


def y_ticks(least, most):
    """1, 2 and 5 times powers of ten, from one that is not above `least` to one not below `most`; powers alone where
    those are many."""
    for factors in ((1, 2, 5), (1,)):
        steps = [factor * 10.0**power for power in range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 2) for factor in factors]
        first = max(i for i, step in enumerate(steps) if step <= least * 1.0001)
        last = min(i for i, step in enumerate(steps) if step >= most * 0.9999)
        ticks = steps[first:max(last, first + 1) + 1]
        if len(ticks) <= 8:
            break
    return ticks


def mark(kind, x, y, colour):
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
    corners = {"square": [(-3, -3), (3, -3), (3, 3), (-3, 3)], "diamond": [(0, -4.5), (4.5, 0), (0, 4.5), (-4.5, 0)],
               "triangle": [(0, -4.5), (4, 3), (-4, 3)]}[kind]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" fill="{colour}"/>'


def axes(panel, ticks, to_x, to_y, left):
    out = [f'<text class="panel" x="{left}" y="{TOP - 24}">{escape(panel.title)}</text>',
           f'<text class="small" x="{left}" y="{TOP - 8}">{escape(panel.y_label)}</text>',
           f'<text class="small" x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">{escape(panel.x_label)}</text>']
    for tick in ticks:
        y = to_y(tick)
        out.append(f'<line class="grid" x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="small" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for x, label in panel.ticks:
        out.append(f'<line class="grid" x1="{to_x(x):.1f}" x2="{to_x(x):.1f}" y1="{TOP}" y2="{TOP + HEIGHT}"/>')
        out.append(f'<text class="small" x="{to_x(x):.1f}" y="{TOP + HEIGHT + 17}" text-anchor="middle">{escape(label)}</text>')
    return out + [f'<rect class="frame" x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/>']


def curve(series, index, to_x, to_y):
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
    at = [(to_x(point.x), to_y(point.y), point) for point in series.points]
    out = [f'<line class="range" stroke="{colour}" x1="{x:.1f}" x2="{x:.1f}" y1="{to_y(point.low):.1f}" y2="{to_y(point.high):.1f}"/>'
           for x, _, point in at if point.high > point.low]
    if series.joined:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in at)
        out.append(f'<polyline class="line" stroke="{colour}" stroke-dasharray="{dash or "none"}" points="{points}"/>')
    return out + [mark(MARKS[index % len(MARKS)], x, y, colour) for x, y, _ in at]


def legend(series, index, left, y):
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
    sample = f'<line class="line" stroke="{colour}" stroke-dasharray="{dash or "none"}" x1="{left}" x2="{left + 34}" y1="{y}" y2="{y}"/>'
    return [sample if series.joined else "", mark(MARKS[index % len(MARKS)], left + 17, y, colour),
            f'<text x="{left + 42}" y="{y + 4}">{escape(series.name)}</text>']


def picture(title, panels, caption):
    """The SVG's text. All panels share the y axis' range; each has its own legend below."""
    points = [point for panel in panels for series in panel.series for point in series.points]
    ticks = y_ticks(min(point.low for point in points), max(point.high for point in points))
    styles = list(dict.fromkeys(series.style for panel in panels for series in panel.series))
    width = len(panels) * (LEFT + WIDTH + RIGHT)
    below = TOP + HEIGHT + BOTTOM + 10
    height = below + ROW * max(len(panel.series) for panel in panels) + 26
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
           f"<title>{escape(title)}</title><style>{STYLE}</style>", f'<rect class="page" width="{width}" height="{height}"/>',
           f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>']
    up = scale(ticks[0], ticks[-1], HEIGHT)
    for position, panel in enumerate(panels):
        left = position * (LEFT + WIDTH + RIGHT) + LEFT
        across = scale(panel.ticks[0][0], panel.ticks[-1][0], WIDTH - 32)
        to_x, to_y = (lambda x, left=left, across=across: left + 16 + across(x)), (lambda y: TOP + HEIGHT - up(y))
        out += axes(panel, ticks, to_x, to_y, left)
        for row, series in enumerate(panel.series):
            index = styles.index(series.style)
            out += curve(series, index, to_x, to_y) + legend(series, index, left, below + ROW * row)
    out += [f'<text class="small" x="{LEFT}" y="{height - 10}">{escape(caption)}</text>', "</svg>"]
    return "\n".join(line for line in out if line) + "\n"
