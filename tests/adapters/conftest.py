"""Nothing of this machine's own credentials reaches an adapter's test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def only_credentials_of_the_test(no_credentials_of_this_machine: None) -> None:
    pass
