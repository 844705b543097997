"""The style of the page: light and dark, on paper, and with a keyboard.

It is one text inside the page, so that the policy of the page can name its digest and refuse every other style,
script, image and request (Content Security Policy level 3, ``style-src 'sha256-…'``). Contrasts of text are at least
4.5 : 1 (WCAG 2.2, 1.4.3).
"""

from __future__ import annotations

import base64
import hashlib

from envbuild.report.html.elements import Html

# A drawing inside the page: without one a browser that reads the page from a server requests /favicon.ico.
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' "
    "rx='3' fill='%231f5fbf'/%3E%3Cpath d='M4 5h8M4 8h8M4 11h5' stroke='white' stroke-width='1.6'/%3E%3C/svg%3E"
)

CSS = Html("""
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #16191d; --soft: #515a64; --line: #d5dae0; --link: #1a56b0;
  --good: #126636; --good-back: #e6f4ec; --bad: #a8201a; --bad-back: #fdebea; --open: #7a4d00; --open-back: #fdf3dc;
  --c0: #cfe0f7; --c1: #d5ecdc; --c2: #fbe3c8; --c3: #e4dbf5; --c4: #f7d7dc; --c5: #d3ecee; --on-tile: #16191d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121519; --card: #1a1e23; --ink: #e7eaee; --soft: #a6afb9; --line: #333a43; --link: #8fbaff;
    --good: #79d6a0; --good-back: #14301f; --bad: #ff9d94; --bad-back: #3a1715; --open: #f0c560; --open-back: #33270a;
    --c0: #234166; --c1: #1f4a31; --c2: #5c401b; --c3: #423463; --c4: #5c2831; --c5: #1c4a4f; --on-tile: #f2f4f7;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 4rem; -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", "Liberation Sans", sans-serif; }
header, nav, main, footer { max-width: 68rem; margin: 0 auto; padding: 0 1.25rem; }
h1 { margin: 0; font-size: clamp(1.7rem, 4vw, 2.4rem); line-height: 1.15; letter-spacing: -0.015em;
  overflow-wrap: anywhere; }
h2 { margin: 0 0 0.35rem; font-size: 1.25rem; line-height: 1.3; letter-spacing: -0.005em; }
h3 { margin: 1.25rem 0 0.4rem; font-size: 1rem; }
p { margin: 0.35rem 0; max-width: 88ch; overflow-wrap: anywhere; }
a { color: var(--link); }
header { padding-top: 2.25rem; }
.kicker { margin: 0 0 0.3rem; color: var(--soft); font-size: 0.85rem; letter-spacing: 0.04em; }
.lead, .why, .more { color: var(--soft); }
.why, .more { font-size: 0.9rem; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 0.5rem; padding: 0.4rem 0.8rem; background: var(--card); z-index: 2; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 3px; }
.verdict { margin: 1.1rem 0 0; padding: 0.85rem 1.1rem; border: 1px solid var(--line);
  border-left: 6px solid var(--open); border-radius: 8px; background: var(--open-back); }
.verdict.good { border-left-color: var(--good); background: var(--good-back); }
.verdict.bad { border-left-color: var(--bad); background: var(--bad-back); }
.verdict .title { font-size: 1.35rem; font-weight: 650; margin: 0; }
.title { font-weight: 600; }
.mark { font-weight: 600; color: var(--open); }
.mark.good { color: var(--good); }
.mark.bad { color: var(--bad); }
.tiles { list-style: none; margin: 0.9rem 0 0; padding: 0; display: grid; gap: 0.6rem;
  grid-template-columns: repeat(auto-fit, minmax(10.4rem, 1fr)); }
.tiles li { display: flex; flex-direction: column; padding: 0.65rem 0.85rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 8px; }
.tiles .what { color: var(--soft); font-size: 0.85rem; }
nav { position: sticky; top: 0; z-index: 1; margin-top: 1rem; background: var(--page);
  border-bottom: 1px solid var(--line); }
nav ul { list-style: none; display: flex; gap: 0.15rem 1.1rem; margin: 0; padding: 0.55rem 0; overflow-x: auto;
  font-size: 0.93rem; }
nav a { text-decoration: none; white-space: nowrap; }
nav a:hover { text-decoration: underline; }
main:focus { outline: none; }
section { margin: 1.1rem 0; padding: 1.15rem 1.25rem 1.25rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
.scroll { overflow-x: auto; margin: 0.7rem 0; }
table { width: 100%; border-collapse: collapse; font-size: 0.92rem; }
caption { text-align: left; font-weight: 600; padding: 0 0 0.35rem; }
.quiet { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
td.short { white-space: nowrap; }
.timing thead th:first-child { width: 40%; }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 0.9rem 0.4rem 0; border-top: 1px solid var(--line);
  overflow-wrap: break-word; unicode-bidi: isolate; }
td.code { overflow-wrap: anywhere; }
td .why { font-family: system-ui, "Segoe UI", "Liberation Sans", sans-serif; }
thead th { border-top: 0; border-bottom: 1px solid var(--line); color: var(--soft); font-size: 0.82rem;
  font-weight: 600; }
tbody th { font-weight: 500; min-width: 8rem; }
tbody tr:first-child > * { border-top: 0; }
td .mark { white-space: nowrap; }
.number { width: 1%; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.number:not(:last-child) { padding-right: 1.6rem; }
.number:last-child { padding-right: 0; }
code, pre, .code { font-family: ui-monospace, "SF Mono", "Liberation Mono", Consolas, monospace; font-size: 0.86em; }
td.code { font-size: 0.84rem; }
th.code { font-family: inherit; }
pre { margin: 0.4rem 0; padding: 0.75rem 0.9rem; overflow-x: auto; background: var(--page);
  border: 1px solid var(--line); border-radius: 6px; line-height: 1.5; }
pre code { font-size: 0.84rem; }
.missing .mark { font-weight: 500; }
details { margin: 0.6rem 0 0; border-top: 1px solid var(--line); }
summary { cursor: pointer; padding: 0.5rem 0; font-weight: 500; color: var(--link); }
.faults { list-style: none; margin: 0; padding: 0; }
.faults li { padding: 0.6rem 0; border-top: 1px solid var(--line); }
.faults li:first-child { border-top: 0; }
.facts { font-size: 0.9rem; }
.treemap, .chart { display: block; width: 100%; height: auto; margin: 0.7rem 0; }
.tile { stroke: var(--line); }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
  .c4 { fill: var(--c4); } .c5 { fill: var(--c5); }
.treemap text { fill: var(--on-tile); font-size: 13px; }
.treemap .name { font-weight: 600; }
.bar { display: block; width: 100%; min-width: 7rem; height: 0.75rem; margin-top: 0.4rem; fill: var(--link); }
.chart text { fill: var(--soft); font-size: 12px; }
.chart .grid { stroke: var(--line); }
.chart .curve { fill: none; stroke: var(--link); stroke-width: 2; }
.chart circle { fill: var(--link); }
.chart .floor { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 6 5; }
.chart .floor-name { fill: var(--bad); font-weight: 600; }
footer { padding: 0.5rem 1.25rem 2.5rem; color: var(--soft); font-size: 0.88rem; }
@media (max-width: 40rem) {
  header, nav, main, footer { padding-left: 0.8rem; padding-right: 0.8rem; }
  section { padding: 0.9rem 0.85rem; }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print {
  :root { --page: #ffffff; --card: #ffffff; }
  body { font-size: 10.5pt; }
  nav, .skip { display: none; }
  section { border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: 0.6rem 0; }
  section, header { padding-left: 0; padding-right: 0; }
  tr, li, svg, pre { break-inside: avoid; }
  h2, h3, caption, summary { break-after: avoid; }
  .scroll, pre { overflow: visible; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  details::details-content { content-visibility: visible; block-size: auto; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
""")


def content_policy() -> str:
    """Return the policy of the page: this style alone, and drawings inside the page; nothing is fetched or run."""
    digest = base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
