"""The table on a terminal, if rich can be imported."""

from __future__ import annotations

import textwrap

from gpukit.findings.finding import FAIL, PASS, SKIP, WARN, Finding, has_details, named, pairs, verdict


def rich_table(findings: list[Finding]) -> bool:
    """Print it; returns False without rich."""
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        return False
    styles = {PASS: "green", WARN: "yellow", FAIL: "bold red", SKIP: "dim"}
    console = Console(highlight=False)
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "check", "seen"):
        grid.add_column(heading, overflow="fold", no_wrap=heading != "seen")
    for finding in findings:
        text = finding.cause if finding.status == SKIP else finding.seen or finding.cause
        if has_details(finding):
            text = textwrap.shorten(text, 160, placeholder=" ...")
        row = (finding.status, escape(finding.title), escape(text))
        grid.add_row(f"[{styles[finding.status]}]{row[0]}[/]", *row[1:], style="dim" if finding.status == SKIP else "")
    console.print(grid)
    for finding in findings:
        if has_details(finding):
            style = styles[finding.status]
            detail = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
            detail.add_column(style="dim", min_width=8)
            detail.add_column(overflow="fold")
            for name, text in pairs(finding):
                detail.add_row(name, escape(text), style="bold" if name == "remedy" else "")
            console.print(f"\n[{style}]{finding.status}[/]  [bold]{escape(finding.title)}[/] [dim]\\[{finding.id}][/]")
            console.print(detail)
    style = styles[FAIL if named(findings, FAIL) else WARN if named(findings, WARN) else PASS]
    console.print(f"\n[{style}]{escape(verdict(findings))}[/]")
    return True
