"""SVG pictures for the pages: bars, lines and maps. Their colours follow the reader's colour scheme, dark or light.

A picture is 480 units wide, so that its text can be read on a page of 400 pixels.
"""

from __future__ import annotations

from html import escape

WIDTH = 480
STYLE = """<style>
text { font: 14px sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e }
.good { fill: #1f6feb } .bad { fill: #cf222e } .line { fill: none; stroke-width: 2 }
.line.good { fill: none; stroke: #1f6feb } .line.bad { fill: none; stroke: #cf222e }
.rule { stroke: #d1d9e0 } .one { stroke: #59636e; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 }
.good { fill: #58a6ff } .bad { fill: #ff7b72 } .line.good { stroke: #58a6ff } .line.bad { stroke: #ff7b72 }
.rule { stroke: #3d444d } .one { stroke: #9198a1 }
}
</style>
"""


def text(x: float, y: float, words: str, at: str = "start", kind: str = "") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{at}"{shown}>{escape(words)}</text>\n'


def rule(x1: float, y1: float, x2: float, y2: float, kind: str = "rule") -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>\n'


def svg(title: str, height: float, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
        f'role="img">\n<title>{escape(title)}</title>\n{STYLE}{text(4, 18, title)}{body}</svg>\n'
    )


def bars(
    title: str,
    groups: "list[tuple[str, list[tuple[str, float, str]]]]",
    unit: str = "",
    decimals: int = 2,
    one: "float | None" = None,
) -> str:
    """A bar for each (label, value, kind) of each named group. `one`: the value of a dashed line."""
    left, right, step = 150, WIDTH - 64, 22
    scale = (right - left) / max(value for _, rows in groups for _, value, _ in rows)
    y, body = 40, ""
    for name, rows in groups:
        body += text(4, y, name, kind="small")
        y += 8
        for label, value, kind in rows:
            end = left + value * scale
            body += text(left - 8, y + 14, label, "end")
            body += f'<rect x="{left}" y="{y + 3}" width="{value * scale:.1f}" height="14" class="{kind}"/>\n'
            body += text(round(end + 6, 1), y + 14, f"{value:.{decimals}f}{unit}")
            y += step
        y += 22
    y -= 22
    if one is not None:
        body += rule(left + one * scale, 30, left + one * scale, y, "one")
    return svg(title, y + 8, body)


def lines(
    title: str, x: "list[float]", series: "list[tuple[str, str, list[float]]]", across: str, up: str
) -> str:
    """A line for each (label, kind, values)."""
    left, right, top, bottom = 44, WIDTH - 8, 64, 268
    values = [value for _, _, line in series for value in line]
    low, high = min(values), max(values)

    def at(position: float, value: float) -> "tuple[float, float]":
        return (
            left + (position - x[0]) / (x[-1] - x[0]) * (right - left),
            bottom - (value - low) / (high - low) * (bottom - top),
        )

    body = ""
    for value in (low, high):
        body += rule(left, at(0, value)[1], right, at(0, value)[1]) + text(
            left - 6, at(0, value)[1] + 4, f"{value:g}", "end", "small"
        )
    for position in (x[0], x[-1]):
        body += text(
            at(position, 0)[0], bottom + 16, f"{position:g}", "middle" if position == x[0] else "end", "small"
        )
    body += text((left + right) / 2, bottom + 16, across, "middle", "small") + text(4, 38, up, kind="small")
    place = left + 70
    for label, kind, line in series:
        points = " ".join(
            "{:.1f},{:.1f}".format(*at(position, value)) for position, value in zip(x, line, strict=True)
        )
        body += f'<polyline points="{points}" class="line {kind}"/>\n'
        body += f'<rect x="{place}" y="28" width="14" height="10" class="{kind}"/>\n' + text(
            place + 20, 38, label
        )
        place += 190
    return svg(title, bottom + 26, body)


def heat(
    title: str, x: "list[int]", y: "list[int]", shares: "dict[tuple[int, int], float]", across: str, up: str
) -> str:
    """A cell for each (x, y): its share, from 0 to 1, in percent."""
    left, top, right = 44, 48, WIDTH - 8
    wide, high = (right - left) / len(x), 19
    body = text(4, 38, up, kind="small")
    for row, value in enumerate(reversed(y)):
        body += text(left - 6, top + row * high + 14, str(value), "end", "small")
        for column, other in enumerate(x):
            share = shares[other, value]
            place = (
                f'x="{left + column * wide:.1f}" y="{top + row * high:g}" width="{wide:.1f}" height="{high}"'
            )
            if share:
                body += f'<rect {place} class="bad" fill-opacity="{0.15 + 0.85 * share:.2f}"/>\n'
    bottom = top + high * len(y)
    for column, value in enumerate(x):
        if column % 4 == 3:
            body += text(left + (column + 0.5) * wide, bottom + 16, str(value), "middle", "small")
    body += rule(left, bottom, right, bottom) + text(
        (left + right) / 2, bottom + 34, across, "middle", "small"
    )
    return svg(title, bottom + 44, body)
