"""Wrong uses by command."""

from tests.cli.outputs.wrong import records, servers, trees
from tests.cli.outputs.wrong.kinds import Uses

WRONG: dict[str, Uses] = {**trees.WRONG, **servers.WRONG, **records.WRONG}
