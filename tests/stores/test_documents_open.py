from __future__ import annotations

import pytest

from lakeplan.errors import StorageError
from lakeplan.stores.open import open_state


@pytest.mark.parametrize("url", ["oss://bucket/x", "lakeplan", "https://example.com/x", "s3://K:SECRET@b/x"])
def it_refuses_other_kinds_of_url(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        open_state(url)
    assert "SECRET" not in str(caught.value)
