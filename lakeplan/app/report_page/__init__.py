"""The document of ``lakeplan report``: a plan; curves, graphs and branches where they are at hand."""

from lakeplan.app.report_page.document import MAX_DETAILED, report_page_document, shown_repositories
from lakeplan.app.report_page.graph import History

__all__ = ["MAX_DETAILED", "History", "report_page_document", "shown_repositories"]
