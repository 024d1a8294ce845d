"""Pages that show a report. A page is one file, and loads nothing."""

from __future__ import annotations

import html
from typing import Iterable

STYLE = """
:root { color-scheme: light dark; --bad: #c0392b; --good: #2e8b57; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } .verdict { font-size: 1.1rem; border-left: .4rem solid var(--bad); padding-left: .8rem; }
.verdict.proven { border-color: var(--good); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th[data-by] { cursor: pointer; } th[data-by]::after { content: " \\2195"; opacity: .4; }
th[aria-sort=ascending]::after { content: " \\2191"; opacity: 1; } th[aria-sort=descending]::after { content: " \\2193"; opacity: 1; }
td.name { overflow-wrap: anywhere; min-width: 12rem; } .bar { background: var(--line); height: .6rem; min-width: 6rem; }
.bar div { background: var(--bad); height: 100%; } .good { color: var(--good); } .bad { color: var(--bad); } small { opacity: .75; }
@media (max-width: 45rem) {
  thead { display: none; } tr { display: block; border-bottom: 1px solid var(--line); padding: .5rem 0; }
  td { display: block; border: 0; padding: .1rem 0; } td:empty { display: none; }
  td[data-label]::before { content: attr(data-label) ": "; opacity: .75; }
}
"""


# Sorts a table's rows by the column whose head is clicked: by the cells' data-sort if they have it (a
# number), else by their text. Numbers begin with the largest, texts with the first; another click reverses
# the order.
SCRIPT = """
for (const head of document.querySelectorAll("th[data-by]")) {
  head.tabIndex = 0;
  const sort = () => {
    const table = head.closest("table"), place = head.cellIndex, body = table.tBodies[0];
    const key = row => { const cell = row.cells[place], by = cell.dataset.sort; return by === undefined ? cell.textContent : +by; };
    const rows = [...body.rows], isNumber = rows.some(row => typeof key(row) === "number");
    const now = head.getAttribute("aria-sort"), up = now ? now === "descending" : !isNumber;
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const order = (a, b) => isNumber ? (+a || 0) - (+b || 0) : String(a).localeCompare(b, undefined, {numeric: true});
    rows.sort((a, b) => (up ? 1 : -1) * order(key(a), key(b))).forEach(row => body.append(row));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
}
"""


def page(title: str, heading: str, verdict: str, *body: str, is_proven: bool = False) -> str:
    """`body`: HTML; the other texts are escaped."""
    e = html.escape
    parts = "\n".join(filter(None, body))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{e(title)}</title><style>{STYLE}</style></head><body>
<h1>{e(heading)}</h1>
<p class="verdict{" proven" if is_proven else ""}">{e(verdict)}</p>
{parts}
<script>{SCRIPT}</script>
</body></html>
"""


def listed(texts: Iterable[str], title: str = "") -> str:
    """A list under a title; nothing if there are no texts."""
    items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return (f"<h2>{html.escape(title)}</h2>" if title else "") + f"<ul>{items}</ul>" if items else ""


def table(heads: Iterable[str], rows: Iterable[str]) -> str:
    """`heads`: see th(). `rows`: the cells of each row."""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{"".join(heads)}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def th(label: str, small: str = "") -> str:
    """A head. A click on it sorts the table."""
    return (
        f"<th data-by>{html.escape(label)}{f'<br><small>{html.escape(small)}</small>' if small else ''}</th>"
    )


def td(label: str, content: str, by: float | str | None = None, attributes: str = "") -> str:
    """A cell with HTML. `label`: its head. `by`: what its column is sorted by; None: its text."""
    sort = "" if by is None else f' data-sort="{by if isinstance(by, str) else format(by, ".6g")}"'
    return f'<td data-label="{html.escape(label)}"{sort}{attributes}>{content}</td>'


def bar(share: float) -> str:
    """A bar of `share` percent. A share that is not 0 is at least visible."""
    return f'<div class="bar"><div style="width:{max(share, 1) if share else 0:.1f}%"></div></div>'
