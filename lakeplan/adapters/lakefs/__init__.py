"""lakeFS servers over HTTP: a reader, writers of rules and policies apart from it, and credentials.

Facts come from ``shared/lakefs/api.md``; differences between servers are handled here and nowhere else.
"""

from lakeplan.adapters.lakefs.client import LakeFSServer, connect
from lakeplan.adapters.lakefs.metadata import LakeFSMetadata
from lakeplan.adapters.lakefs.secret import Credentials, Secret
from lakeplan.adapters.lakefs.settings_writer import LakeFSSettingsWriter, connect_settings_writer
from lakeplan.adapters.lakefs.transport import Clock, RetryPolicy, Timeouts
from lakeplan.adapters.lakefs.writer import LakeFSRulesWriter, connect_rules_writer

__all__ = [
    "Clock",
    "Credentials",
    "LakeFSMetadata",
    "LakeFSRulesWriter",
    "LakeFSServer",
    "LakeFSSettingsWriter",
    "RetryPolicy",
    "Secret",
    "Timeouts",
    "connect",
    "connect_rules_writer",
    "connect_settings_writer",
]
