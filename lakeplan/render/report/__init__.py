"""The report page: one HTML file out of one document (``lakeplan.app.report_page``), nothing fetched.

Tables, headings and still pictures are in the HTML and need no script; the commit graph, sorting and the
choice of colours do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.render.report.branches import branches_section
from lakeplan.render.report.curves import curves_section
from lakeplan.render.report.graph import graph_section
from lakeplan.render.report.impact import impact_section
from lakeplan.render.report.overview import gates_section, notes_section, summary_section
from lakeplan.render.report.shell import page
from lakeplan.render.report.timeline import timeline_section

Json = Mapping[str, Any]


def render_report(document: Json) -> str:
    """The page as text of an HTML file."""
    graph, data = graph_section(document)
    sections = [
        summary_section(document),
        gates_section(document),
        impact_section(document),
        timeline_section(document),
        curves_section(document),
        graph,
        branches_section(document),
        notes_section(document),
    ]
    return page(document, [s for s in sections if s is not None], data)
