"""Documents as terminal text, Markdown, pages, JUnit, annotations and metrics."""
