"""What a person sees: a run as a timeline of blocks, the picture of a counterexample, charts and pages.

In: runs, counterexamples, summaries (plain data). Out: text for a terminal, Markdown, self-contained HTML.

`timeline` is for terminals, `picture` (with `layout`) draws one counterexample, `chart` figures, `page` a campaign.
`markdown_section` keeps the generated part of a page that people write. It starts nothing and decides nothing.

Campaigns, the audit, the tools and the command line use this room.

Imports: fuzz.runs, properties, reference, jinja2, rich.
"""
