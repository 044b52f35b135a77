"""Documents as terminal text, Markdown, pages, JUnit, annotations and metrics."""

__all__ = [
    "explain",
    "lifecycle",
    "operations",
    "plan",
    "redact",
    "report",
    "show",
    "simulate",
    "sweep",
    "text",
]
