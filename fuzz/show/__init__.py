"""What a person sees: a run as a timeline of blocks, the picture of a counterexample, charts and pages.

In: runs, counterexamples, summaries (plain data). Out: text for a terminal, Markdown, self-contained HTML.

It starts nothing and decides nothing.

Imports: fuzz.runs, properties, reference, jinja2, rich.
"""
