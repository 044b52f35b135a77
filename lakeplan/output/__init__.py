"""Documents as terminal text, Markdown, pages, JUnit, annotations and metrics."""

__all__ = [
    "audit",
    "audit_page",
    "check",
    "comments",
    "explain",
    "lifecycle",
    "mark_page",
    "occasions",
    "operations",
    "plan",
    "redact",
    "report",
    "show",
    "simulate",
    "storage",
    "storage_page",
    "sweep",
    "text",
]
