"""Tables as JSON, CSV and Markdown: our value (mean ± std over n seeds), the paper's, the difference and the ranking.

`document` builds a table as plain data; `to_csv` and `to_markdown` write it. A cell without a result is marked missing.
The best value of each column is bold, as in the paper; supervised and random weights are bounds and do not compete.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relatum.paper import measured
from relatum.paper.cells import Cell, Planned, Sheet
from relatum.paper.measured import Results, Score, score

STD_NOTE = (
    "± is the sample standard deviation over seeds (division by n − 1). The paper does not say which it used; in its "
    "finetuning table, best 72.04 with 69.82 ± 3.36 over three runs can only be the sample's."
)
RANK_NOTE = (
    "Ranking: of all pairs of methods in a column that have both figures, those that ours and the paper's put in the "
    "same order, bounds (supervised, random weights) apart; τ is Kendall's (agreeing less disagreeing pairs, over all "
    "pairs; ties count as neither)."
)


def document(planned: Planned, results: Results) -> dict[str, Any]:
    """A rendered table as plain data.

    Args:
        planned: a table of a plan.
        results: where our figures come from.
    """
    sheets = [_sheet(sheet, results) for sheet in planned.sheets]
    statuses = [c["status"] for s in sheets for c in s["cells"]]
    return {
        "table": planned.name,
        "title": "; ".join(dict.fromkeys(s["title"] for s in sheets)),
        "where": planned.table.where,
        "caption": planned.caption,
        "complete": all(s in (measured.DONE, measured.NOTHING) for s in statuses),
        "sheets": sheets,
        "notes": _notes(sheets),
    }


def _notes(sheets: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes that explain the values shown."""
    cells = [c for s in sheets for c in s["cells"]]
    spread = any(c["ours_std"] is not None or c["paper_std"] is not None for c in cells)
    return [STD_NOTE] * spread + [RANK_NOTE] * any(s["ranking"] for s in sheets)


def _sheet(sheet: Sheet, results: Results) -> dict[str, Any]:
    figures = {id(cell): score(cell, results) for cell in sheet.cells}
    cells = []
    for cell in sheet.cells:
        ours, paper = figures[id(cell)], cell.paper
        cells.append(
            {
                "row": cell.row.title,
                "column": cell.column.name,
                "row_key": cell.row.key,
                "column_key": cell.column.key,
                "kind": cell.kind,
                "status": ours.status,
                "reason": ours.reason,
                "conditions": "; ".join(cell.remarks),
                "ours": ours.mean,
                "ours_std": ours.std,
                "n": ours.n,
                "seeds": ours.of,
                "failed": ours.failed,
                "text": ours.text,
                "paper": paper.mean,
                "paper_std": paper.std,
                "paper_text": paper.text,
                "difference": None if ours.mean is None or paper.mean is None else ours.mean - paper.mean,
                "sources": sorted({str(p) for e in (*cell.evaluations, *cell.minus) if (p := results.source(e))}),
                "best": _is_best(cell, sheet, {k: f.mean for k, f in figures.items()}),
                "paper_best": _is_best(cell, sheet, {id(c): c.paper.mean for c in sheet.cells}),
            }
        )
    return {
        "table": sheet.table.name,
        "title": sheet.title,
        "caption": sheet.caption,
        "conditions": "; ".join(sheet.remarks),
        "head": sheet.table.head,
        "rows": [{"key": r.key, "title": r.title, "note": r.note, "bound": r.bound} for r in sheet.rows],
        "columns": [{"key": c.key, "title": c.title, "group": c.group, "kind": c.kind} for c in sheet.columns],
        "cells": cells,
        "ranking": [r for c in sheet.columns if (r := _ranking(sheet, c.key, figures)) is not None],
    }


def _is_best(cell: Cell, sheet: Sheet, values: Mapping[int, float | None]) -> bool:
    """Whether the cell is the best of its column; a column with a single value has no best."""
    if cell.row.bound or cell.kind in ("delta", "n/a", *measured.FACTS) or (mine := values[id(cell)]) is None:
        return False
    column = [c for c in sheet.cells if c.column is cell.column and not c.row.bound and values[id(c)] is not None]
    # Compared to two decimals, as printed: equal values are both best.
    return len(column) > 1 and all(round(mine, 2) >= round(values[id(c)] or 0.0, 2) for c in column)


def _ranking(sheet: Sheet, column: str, figures: Mapping[int, Score]) -> dict[str, Any] | None:
    """Agreement of our ranking of a column's methods with the paper's; bounds are left out."""
    both = []
    for cell in sheet.cells:
        ours = figures[id(cell)].mean
        if (
            cell.column.key == column
            and not cell.row.bound
            and cell.kind in ("mean", "best")
            and ours is not None
            and cell.paper.mean is not None
        ):
            both.append((ours, cell.paper.mean))
    if len(both) < 2:
        return None
    signs = [_sign(a[0] - b[0]) * _sign(a[1] - b[1]) for a, b in itertools.combinations(both, 2)]
    agree = signs.count(1)
    return {"column": column, "pairs": len(signs), "agree": agree, "kendall_tau": round(sum(signs) / len(signs), 4)}


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)


# -------------------------------------------------------------------------------------------------------------- writing

CSV_COLUMNS = (
    *("table", "row", "column", "ours", "ours_std", "n", "seeds", "paper", "paper_std"),
    *("difference", "best", "paper_best", "status", "reason", "conditions"),
    *("ranking_pairs", "ranking_agree", "kendall_tau"),  # of the cell's column
)


def to_csv(rendered: Mapping[str, Any]) -> str:
    """One line per cell; a cell without a result has an empty number and a reason."""
    out = io.StringIO()
    if "claims" in rendered:
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(["claim", "where", "sentence", "ours", "ours_figures", "on_paper", "on_paper_figures"])
        for claim in rendered["claims"]:
            verdicts = [claim[side][key] for side in ("ours", "on_paper") for key in ("verdict", "figures")]
            lines.writerow([claim["key"], claim["where"], claim["sentence"], *verdicts])
        return out.getvalue()
    writer = csv.DictWriter(out, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for sheet in rendered["sheets"]:
        ranking = {r["column"]: r for r in sheet["ranking"]}
        for cell in sheet["cells"]:
            ranks = ranking.get(cell["column_key"], {})
            alike = {k: ranks.get(k.removeprefix("ranking_")) for k in CSV_COLUMNS[-3:]}
            numbers = {k: f"{cell[k]:.4f}" for k in ("ours", "ours_std", "difference") if cell[k] is not None}
            writer.writerow({**cell, **numbers, **alike, "table": sheet["table"]})
    return out.getvalue()


def to_markdown(rendered: Mapping[str, Any], folder: Path | None = None) -> str:
    """The table as Markdown, with notes; given the `folder` it is written to, also with links to the runs."""
    if "claims" in rendered:
        return _claims_markdown(rendered)
    parts = []
    for sheet in rendered["sheets"]:
        parts.append(f"### {sheet['title']}")
        parts.append(sheet["caption"])
        pictures = all(c["kind"] == "picture" for c in sheet["cells"])
        compared = any(c["difference"] is not None for c in sheet["cells"])
        what = "ours, the paper's, and the difference" if compared else "ours"
        legend = "" if pictures else f"Each cell: {what}; the best of a column in bold. "
        parts.append(legend + _note_of_states(sheet))
        parts.append(_grid(sheet))
    notes = [f"- {n}" for n in rendered["notes"]]
    drawn = [p for p in rendered.get("figures", ()) if p.endswith(".png")]
    if folder is not None:
        parts += [f"![{rendered['title']}]({Path(os.path.relpath(p, folder)).as_posix()})" for p in drawn]
    sources = dict.fromkeys(p for s in rendered["sheets"] for c in s["cells"] for p in c["sources"])
    if folder is not None and sources:
        links = (f"[{Path(p).stem}]({Path(os.path.relpath(p, folder)).as_posix()})" for p in sources)
        notes.append(f"- Runs: {', '.join(links)}.")
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def _note_of_states(sheet: Mapping[str, Any]) -> str:
    counts = {
        s: sum(c["status"] == s for c in sheet["cells"])
        for s in (measured.DONE, measured.PARTIAL, measured.FAILED, measured.MISSING)
    }
    text = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
    return f"Cells: {text}." if text else ""


def _grid(sheet: Mapping[str, Any]) -> str:
    columns = sheet["columns"]
    names = [f"{c['group']}<br>{c['title']}" if c["group"] else c["title"] for c in columns]
    lines = [_line([sheet["head"], *names]), _line(["---"] * (len(names) + 1))]
    cells = {(c["row_key"], c["column_key"]): c for c in sheet["cells"]}
    for row in sheet["rows"]:
        title = f"{row['title']}<br><sub>{row['note']}</sub>" if row["note"] else row["title"]
        lines.append(_line([title, *(_markdown_cell(cells.get((row["key"], c["key"]))) for c in columns)]))
    ranking = {r["column"]: r for r in sheet["ranking"]}
    if ranking:
        agreement = (
            f"{r['agree']}/{r['pairs']}, τ {r['kendall_tau']:+.2f}" if (r := ranking.get(c["key"])) else ""
            for c in columns
        )
        lines.append(_line(["*ranking agrees*", *agreement]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(w.replace("|", "\\|") for w in cells) + " |"


def _markdown_cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    if cell["kind"] == "n/a":
        return "n/a"
    paper = f"paper {cell['paper_text']}" if cell["paper"] is not None else ""
    if cell["paper_best"] and paper:
        paper = f"paper **{cell['paper_text']}**"
    if cell["kind"] == "literature":
        return paper.replace("paper ", "reported ")
    ours = cell["text"]
    ours = f"**{ours}**" if cell["best"] else (ours if cell["ours"] is not None else f"*{ours}*")
    difference = "" if cell["difference"] is None else f"{cell['difference']:+.2f}"
    return "<br>".join(w for w in (ours, paper, difference) if w)


def _claims_markdown(rendered: Mapping[str, Any]) -> str:
    lines = [f"### {rendered['title']}", ""]
    lines += [_line(["Claim", "On our runs", "On the paper's own tables"]), _line(["---"] * 3)]
    for claim in rendered["claims"]:
        ours, paper = claim["ours"], claim["on_paper"]
        quote = f"“{claim['sentence']}”<br><sub>{claim['where']}</sub>"
        lines.append(_line([quote, *(f"**{v['verdict']}**<br>{v['figures']}" for v in (ours, paper))]))
    return "\n".join([*lines, "", *(f"- {n}" for n in rendered["notes"])]) + "\n"
