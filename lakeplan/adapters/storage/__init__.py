"""Storage namespaces of every kind behind one port: folders, S3 and Azure blob.

``open_namespace`` (to read) and ``open_sweep_store`` (to delete, copy and record, too) choose by the URL.
Credentials are never part of a URL here: each vendor's usual chain finds them, in Spark workers too
(``lakeplan.ports.storage``).
"""

from lakeplan.adapters.storage.open import open_namespace, open_sweep_store

__all__ = ["open_namespace", "open_sweep_store"]
