"""How a report looks: on a screen by day and by night, on a phone, and on A4. System fonts only, one accent colour."""

LIGHT = """
  --paper: #fcfbf9; --card: #f5f3ef; --ink: #1f2328; --soft: #5c636b; --faint: #8d939a; --hair: #e3dfd8;
  --accent: #0f6e6a; --wash: #dcebe9;
  --s0: #0f6e6a; --s1: #b4531c; --s2: #4b4aa8; --s3: #a8326e; --s4: #5f7a1e; --s5: #1f6fa8; --s6: #7a4a2c; --s7: #6a7077;
"""

DARK = """
  --paper: #16181b; --card: #1e2125; --ink: #e4e3df; --soft: #a5aab0; --faint: #7b8087; --hair: #31353a;
  --accent: #63c2bb; --wash: #1f3a39;
  --s0: #63c2bb; --s1: #e79a67; --s2: #a3a3f0; --s3: #ea8fbd; --s4: #b5cf73; --s5: #7fc0ef; --s6: #cfa082; --s7: #a5aab0;
"""

TEXT = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.6 var(--sans);
  -webkit-print-color-adjust: exact; print-color-adjust: exact; font-kerning: normal; }
main { max-width: 58rem; margin: 0 auto; padding: 4.5rem 2rem 6rem; overflow-wrap: anywhere; }
section { margin-top: 4.5rem; }
p, ul { max-width: 42rem; }
h1, h2, .verdict { font-family: var(--serif); font-weight: 600; line-height: 1.2; letter-spacing: -0.012em; }
h1, h2, .verdict { text-wrap: balance; }
h1 { font-size: 2.5rem; margin: 0.3rem 0 0.4rem; }
h2 { font-size: 1.55rem; margin: 0 0 0.9rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 0; }
h4 { font-size: 0.82rem; font-weight: 500; color: var(--soft); margin: 0 0 0.5rem; }
p { margin: 0.7rem 0; }
small, sup { font-size: 0.8em; line-height: 1.35; }
sup { line-height: 0; margin-left: 0.15em; }
code, pre { font-family: var(--mono); font-size: 0.86em; }
pre {
  background: var(--card); border-radius: 6px; padding: 0.9rem 1.1rem; margin: 0 0 1.2rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
ul { padding-left: 1.1rem; }
li { margin: 0.45rem 0; }
li::marker { color: var(--faint); }
.eyebrow {
  font: 600 0.78rem/1.4 var(--sans); letter-spacing: 0.09em; text-transform: uppercase; color: var(--accent); margin: 0; }
.when, .muted, .variant { color: var(--soft); }
.when { margin: 0 0 1.8rem; }
.line { display: block; }
.notice { border-left: 3px solid var(--accent); padding: 0.15rem 0 0.15rem 1rem; max-width: 44rem; margin: 1.2rem 0; }
.verdict { font-size: 2.05rem; margin: 0.5rem 0 1.5rem; max-width: 44rem; }
.levels {
  display: grid; grid-template-columns: repeat(3, 1fr); gap: 4px; list-style: none; padding: 0; margin: 0 0 1.8rem;
  max-width: 42rem; }
.levels li {
  margin: 0; padding-top: 0.45rem; border-top: 5px solid var(--hair);
  color: var(--faint); font-size: 0.86rem; line-height: 1.35; }
.levels .here { border-color: var(--accent); color: var(--ink); font-weight: 600; }
.rule { font-size: 0.88rem; color: var(--soft); margin-top: 1.3rem; }
"""

BLOCKS = """
dl { margin: 1.4rem 0 0; }
dd { margin: 0; }
.facts > div {
  display: grid; grid-template-columns: 8rem 1fr; gap: 1rem; padding: 0.5rem 0; border-top: 1px solid var(--hair); }
.facts dt { color: var(--soft); }
.facts code { overflow-wrap: anywhere; }
figure { margin: 1.6rem 0 2.6rem; }
figcaption { font-size: 0.86rem; line-height: 1.55; color: var(--soft); max-width: 44rem; margin-top: 0.9rem; }
.notes { display: block; margin-top: 0.4rem; }
table {
  border-collapse: collapse; width: 100%;
  font-size: 0.88rem; line-height: 1.4; font-variant-numeric: tabular-nums lining-nums; }
th { font-weight: 500; text-align: left; }
thead th { color: var(--soft); font-size: 0.78rem; line-height: 1.35; vertical-align: bottom; padding: 0 0.8rem 0.5rem 0; }
thead th { overflow-wrap: break-word; }
tbody th, td { vertical-align: top; padding: 0.6rem 0.8rem 0.6rem 0; border-top: 1px solid var(--hair); }
tbody tr:last-child > * { border-bottom: 1px solid var(--hair); }
tbody th { font-weight: 600; min-width: 8rem; }
th small, td small, .cards small { display: block; font-weight: 400; color: var(--soft); }
td small { white-space: nowrap; }
td b { font-weight: 600; }
.figures tbody th { width: 11rem; }
.costs td { min-width: 4.5rem; }
.grid { display: grid; gap: 1.8rem 2rem; }
.three { grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); }
.two { grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); margin-top: 0.9rem; }
.grid > div { max-width: 28rem; }
.variant { font-size: 0.82rem; margin: 0 0 0.5rem; }
.beside { display: grid; grid-template-columns: minmax(0, 35rem) minmax(14rem, 1fr); gap: 2rem; align-items: start; }
.legend { list-style: none; padding: 0; margin: 0.6rem 0 0; font-size: 0.85rem; line-height: 1.4; }
.legend li { display: grid; grid-template-columns: 2.2rem 1fr; gap: 0.4rem; margin: 0 0 0.7rem; }
.legend small { color: var(--soft); font-variant-numeric: tabular-nums; }
.legend b { font-weight: 600; }
.key {
  display: inline-block; width: 0.85rem; height: 0.85rem;
  margin: 0 0.45rem 0 0; vertical-align: -0.08rem; border-radius: 2px; }
.key:not(:first-child) { margin-left: 1.3rem; }
.key.members { background: var(--wash); border: 1.5px solid var(--accent); }
.key.others { border: 1.5px solid var(--soft); }
.key.before, .key.after { width: 0.7rem; height: 0.7rem; border-radius: 50%; border: 1.8px solid var(--soft); }
.key.after { background: var(--accent); border-color: var(--accent); }
.cards {
  list-style: none; padding: 0; margin: 0; max-width: none;
  display: grid; grid-template-columns: repeat(auto-fill, minmax(12.5rem, 1fr)); gap: 1.2rem; }
.cards li { margin: 0; background: var(--card); border-radius: 8px; padding: 1rem; font-size: 0.82rem; }
.cards img + img { margin-top: 0.5rem; }
.cards img, .hidden { display: block; width: 6rem; height: 6rem; border-radius: 4px; object-fit: contain; }
.cards img { image-rendering: pixelated; background: #000; }
.hidden { display: grid; place-items: center; border: 1px dashed var(--faint); color: var(--faint); }
.cards p { margin: 0.6rem 0; }
.cards p b { font-size: 0.95rem; }
.cards dl {
  display: grid; grid-template-columns: minmax(0, 1fr) 2.8rem 3.1rem; gap: 0.2rem 0.5rem;
  margin: 0; align-items: center; }
.cards dt { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; color: var(--soft); }
.cards dd { display: contents; font-variant-numeric: tabular-nums; }
.bar { height: 4px; border-radius: 2px; background: var(--hair); overflow: hidden; }
.bar i { display: block; height: 100%; background: var(--accent); }
"""

DRAWINGS = """
svg { display: block; width: 100%; height: auto; font-family: var(--sans); font-size: 12px; overflow: visible; }
svg text { fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .name { fill: var(--ink); }
svg line, svg path, svg circle { vector-effect: non-scaling-stroke; }
.forest { width: 10rem; max-width: 100%; }
.swatch { width: 1.9rem; margin-top: 0.3rem; }
line.grid { stroke: var(--hair); }
.base { stroke: var(--faint); }
.band { fill: var(--ink); opacity: 0.045; }
.guessing, .chance { stroke: var(--faint); stroke-dasharray: 1.5 3.5; stroke-linecap: round; fill: none; stroke-width: 1.4; }
.limit { stroke: var(--ink); fill: none; stroke-width: 1.2; }
.series { fill: none; stroke-width: 1.7; stroke-linejoin: round; }
.s0 { stroke: var(--s0); stroke-width: 2.6; } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); } .s3 { stroke: var(--s3); }
.s4 { stroke: var(--s4); } .s5 { stroke: var(--s5); } .s6 { stroke: var(--s6); } .s7 { stroke: var(--s7); }
.reach { stroke-width: 2; stroke: var(--accent); stroke-linecap: round; }
.reach.before { stroke: var(--faint); }
.dot { fill: var(--accent); stroke: var(--accent); stroke-width: 1.6; }
.dot.before { fill: var(--paper); stroke: var(--soft); }
path.members { fill: var(--accent); fill-opacity: 0.22; stroke: var(--accent); stroke-width: 1.2; }
path.others { fill: none; stroke: var(--soft); stroke-width: 1.4; }
"""

NARROW = """
@media screen and (max-width: 46rem) {
  main { padding: 2.4rem 1.15rem 4rem; }
  section { margin-top: 3.4rem; }
  h1 { font-size: 1.9rem; }
  .verdict { font-size: 1.6rem; }
  .facts > div { grid-template-columns: 1fr; gap: 0; }
  .beside { grid-template-columns: minmax(0, 1fr); gap: 1rem; }
  thead { display: none; }
  table, tbody, tr, td, tbody th { display: block; width: auto; }
  .figures tbody th { width: auto; }
  tbody tr { border-top: 1px solid var(--hair); padding: 0.7rem 0; }
  tbody tr > *, tbody tr:last-child > * { border: 0; padding: 0.18rem 0; }
  td { display: grid; grid-template-columns: minmax(7rem, 40%) 1fr; gap: 0 0.8rem; }
  td::before { content: attr(data-label); color: var(--soft); font-size: 0.8rem; grid-row: span 2; }
  td > * { grid-column: 2; }
  .cards { grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 0.8rem; }
  .cards dl { grid-template-columns: minmax(0, 1fr) 3.1rem; }
  .cards .bar { display: none; }
}
"""

PAGED = """
@page { size: A4; margin: 17mm 16mm 18mm; }
@media print {
  body { font-size: 9.6pt; background: none; }
  main { max-width: none; padding: 0; }
  section { margin-top: 2.2rem; }
  h1 { font-size: 22pt; } .verdict { font-size: 17pt; } h2 { font-size: 13.5pt; }
  h2, h3, h4 { break-after: avoid; }
  tr, .cards li, .notice, .grid > div, .beside, .levels, pre { break-inside: avoid; }
  table { font-size: 8pt; } thead th { font-size: 7.4pt; }
  thead th, tbody th, td { padding-right: 0.5rem; }
  .forest { width: 6.5rem; }
  .figures tbody th { width: 8rem; min-width: 0; }
  .three { grid-template-columns: repeat(3, 1fr); gap: 1rem; }
  .two { grid-template-columns: repeat(2, 1fr); }
  .beside { grid-template-columns: minmax(0, 25rem) 1fr; gap: 1.2rem; }
  .cards { grid-template-columns: repeat(4, 1fr); gap: 0.7rem; }
  .cards img, .hidden { width: 4.4rem; height: 4.4rem; }
  figure, ul, p { orphans: 3; widows: 3; }
}
"""

FONTS = """
  color-scheme: light dark;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, Charter, "Bitstream Charter", "Noto Serif", Georgia, serif;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
"""

STYLE = (
    f":root {{{FONTS}{LIGHT}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{{DARK}}} }}\n"
    f"{TEXT}{BLOCKS}{DRAWINGS}{NARROW}{PAGED}"
)
