"""Renders documents as terminal text, Markdown, HTML pages, JUnit, annotations and metrics."""

__all__ = [
    "audit",
    "branches",
    "check",
    "comments",
    "explain",
    "occasions",
    "operations",
    "plan",
    "redact",
    "report",
    "simulate",
    "storage",
    "sweep",
    "text",
]
