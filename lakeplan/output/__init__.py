"""Renders documents as terminal text, Markdown, HTML pages, JUnit, annotations and metrics."""

__all__ = [
    "audit",
    "branches",
    "check",
    "comments",
    "explain",
    "mark_page",
    "occasions",
    "operations",
    "plan",
    "redact",
    "report",
    "show",
    "simulate",
    "storage",
    "sweep",
    "text",
]
