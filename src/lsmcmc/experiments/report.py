"""One self-contained HTML page of all results in a folder: paper beside measurement, a verdict per claim."""

import base64
import os
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from lsmcmc.experiments.result import CHECK, Verdict, read

NAME = "report.html"

_MARKS = {Verdict.REPRODUCED: ("yes", "✓"), Verdict.NOT_REPRODUCED: ("no", "✗"), Verdict.INCONSISTENT: ("odd", "≠")}


def write(folder: Path) -> Path:
    """`folder`/report.html, replaced in one step. No file beside it and no network is needed to read it."""
    folder.mkdir(parents=True, exist_ok=True)
    path, scratch = folder / NAME, folder / f".{NAME}-new"
    scratch.write_text(page(folder), encoding="utf-8")
    os.replace(scratch, path)
    return path


def page(folder: Path) -> str:
    """The page of every experiment that `folder` holds, in the paper's order."""
    from lsmcmc.experiments import EXPERIMENTS

    found = [record for record in (read(folder, name) for name in EXPERIMENTS) if record is not None]
    style = files("lsmcmc.experiments").joinpath("report.css").read_text(encoding="utf-8")
    absent = [name for name in EXPERIMENTS if name not in [record["name"] for record in found]]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper, reproduced</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>The paper, reproduced</h1>
<p>Wang, Zou, Gu and Osher (2019), <cite>Laplacian Smoothing Stochastic Gradient Markov Chain Monte Carlo</cite>: each
claim of a table or figure beside its measurement.</p>
</header>
<main>
{_summary(found)}
{f"<p>Not in this folder: {escape(', '.join(absent))}.</p>" if absent else ""}
{_how_to_read()}
{"".join(_section(record, folder / record["name"]) for record in found)}
</main>
</body>
</html>
"""


def sentence(claim: dict[str, Any]) -> str:
    """A claim as a line of text.

    >>> sentence({"claim": "a", "paper": "1", "measured": 0.52, "interval": [0.5, 0.54], "verdict": "not reproduced"})
    'a: 0.52 [0.5, 0.54], paper: 1: not reproduced'
    """
    return (
        f"{claim['claim']}: {number(claim['measured'])} {_interval(claim)}, paper: {claim['paper']}: {claim['verdict']}"
    )


def number(value: Any) -> str:
    """Four significant digits.

    >>> number(0.44721), number(1.5e-7), number(100000), number(None)
    ('0.4472', '1.5e-07', '100000', '–')
    """
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _interval(claim: dict[str, Any]) -> str:
    low, high = claim["interval"]
    return f"[{number(low)}, {number(high)}]"


def _summary(records: list[dict[str, Any]]) -> str:
    rows = [
        [
            f'<a href="#{escape(record["name"])}">{escape(record["title"])}</a>',
            escape(_size(record)),
            *[_count(_of_the_paper(record), verdict) for verdict in Verdict],
            _passed(_checks(record)),
            f"{record['seconds']:.0f} s",
        ]
        for record in records
    ]
    heads = ["claims of the paper", "size", *Verdict, "own checks passed", "time"]
    return f"<h2>Summary</h2>\n{_table(heads, rows, 'summary')}"


def _of_the_paper(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [claim for claim in record["claims"] if CHECK not in claim["claim"]]


def _checks(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [claim for claim in record["claims"] if CHECK in claim["claim"]]


def _count(claims: list[dict[str, Any]], verdict: Verdict) -> str:
    count = sum(claim["verdict"] == verdict for claim in claims)
    return f'<span class="{_MARKS[verdict][0]}">{count}</span>' if count else "0"


def _passed(checks: list[dict[str, Any]]) -> str:
    passed = sum(claim["verdict"] == Verdict.REPRODUCED for claim in checks)
    style = "yes" if passed == len(checks) else "no"
    return f'<span class="{style}">{passed} of {len(checks)}</span>' if checks else "–"


def _size(record: dict[str, Any]) -> str:
    return f"{'quick' if record['settings']['quick'] else 'full'}, seed {record['settings']['seed']}"


def _how_to_read() -> str:
    meanings = {
        Verdict.REPRODUCED: "the numbers bear the claim out; of a comparison, the whole interval lies on its side",
        Verdict.NOT_REPRODUCED: "they do not: the difference is the other way, or none is seen (the remark says which)",
        Verdict.INCONSISTENT: "the paper's statement and its printed number, or two of them, cannot both be right",
    }
    rows = [[_verdict(verdict), escape(meaning)] for verdict, meaning in meanings.items()]
    return (
        f"<details open><summary>How to read the verdicts</summary>\n{_table(['verdict', 'meaning'], rows)}\n"
        "<p>Verdicts are computed from the measured numbers by fixed rules, none is written by hand. Where a claim "
        "compares two, what is measured is the first divided by the second, unless the claim names something else; of "
        "accuracies it is the difference in percentage points. What an interval is stands above each list of claims. "
        "Claims of one experiment share chains and data, so their counts are not counts of independent findings. "
        "Checks of this library against exact values are counted apart.</p></details>"
    )


def _section(record: dict[str, Any], folder: Path) -> str:
    name, title = escape(record["name"]), escape(record["title"])
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in record["remarks"])
    figures = "".join(_figure(folder / f"{figure}.svg", f"{record['title']}: {figure}") for figure in record["figures"])
    tables = "".join(
        _details(f"Table: {table} ({record['name']}/{table}.csv)", _rows(rows))
        for table, rows in record["tables"].items()
    )
    settings = {"size": _size(record), **record["settings"], **record["versions"], "seconds": record["seconds"]}
    return f"""<section id="{name}">
<h2>{title}</h2>
{_shortened(record)}
<h3>Which reading</h3>
<ul>{remarks}</ul>
<h3>Claims</h3>
<p class="note">Intervals: {escape(record["intervals"])}</p>
{_claims(_of_the_paper(record))}
{_own(_checks(record))}
{figures}
{tables}
{_details("Settings and versions", _table(["setting", "value"], [[escape(k), _cell(v)] for k, v in settings.items()]))}
</section>
"""


def _shortened(record: dict[str, Any]) -> str:
    from lsmcmc.experiments import EXPERIMENTS

    what = EXPERIMENTS[record["name"]].QUICK
    return f"<p>A quick run: {escape(what)}.</p>" if record["settings"]["quick"] else "<p>A full run.</p>"


def _claims(claims: list[dict[str, Any]]) -> str:
    rows = [_row(claim, escape(claim["paper"]), _verdict(Verdict(claim["verdict"]))) for claim in claims]
    return _table(["claim", "paper", "measured", "interval", "verdict", "remark"], rows, "claims")


def _own(checks: list[dict[str, Any]]) -> str:
    """The checks, with the outcome in words of their own: the paper has no part in them."""
    if not checks:
        return ""
    rows = []
    for check in checks:
        passed = check["verdict"] == Verdict.REPRODUCED
        style, outcome = ("yes", "✓ passed") if passed else ("no", "✗ failed")
        rows.append(_row(check, "–", f'<span class="{style}">{outcome}</span>'))
    heads = ["check", "paper", "measured", "interval", "outcome", "remark"]
    return f"<h3>Checks of this library</h3>\n{_table(heads, rows, 'claims')}"


def _row(claim: dict[str, Any], paper: str, verdict: str) -> list[str]:
    measured = escape(number(claim["measured"])), escape(_interval(claim))
    return [escape(claim["claim"]), paper, *measured, verdict, escape(claim["note"])]


def _verdict(verdict: Verdict) -> str:
    style, mark = _MARKS[verdict]
    return f'<span class="{style}">{mark} {escape(verdict)}</span>'


def _figure(path: Path, title: str) -> str:
    """As an image of its own, so that names inside one drawing do not meet those of another."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    caption = escape(title)
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{caption}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>\n"


def _rows(rows: list[dict[str, Any]]) -> str:
    return _table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows], "data")


def _cell(value: Any) -> str:
    return escape(", ".join(map(number, value)) if isinstance(value, list) else number(value))


def _details(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{body}</details>\n"


def _table(heads: list[str], rows: list[list[str]], style: str = "") -> str:
    """Of cells that are HTML already; on a narrow screen each cell carries its head."""
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = "\n".join(
        "<tr>"
        + "".join(f'<td data-head="{escape(h)}">{cell}</td>' for h, cell in zip(heads, row, strict=True))
        + "</tr>"
        for row in rows
    )
    table = f'<table class="{style}"><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
    return f'<div class="wide">{table}</div>'
