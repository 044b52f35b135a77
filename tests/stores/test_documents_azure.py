from __future__ import annotations

import pytest

from lakeplan.errors import StorageDenied, StorageNotFound
from lakeplan.stores.open import open_state
from tests.stores.documents_contract import Open, StateContract, count_winners


class DescribeAzureState(StateContract):
    @pytest.fixture
    def open_again(self, azure_container: str) -> Open:
        return lambda: open_state(f"{azure_container}/ops/lakeplan")

    def it_lets_one_of_several_threads_win(self, open_again: Open) -> None:
        assert count_winners(open_again, rounds=10) == [1] * 10

    def it_says_that_the_container_is_missing(self, azure_container: str) -> None:
        state = open_state(f"{azure_container}-is-not-there/x")
        with pytest.raises(StorageNotFound, match="bucket or container does not exist"):
            state.read("a")
        with pytest.raises(StorageNotFound, match="bucket or container does not exist"):
            state.write("a", b"1", if_version=None)

    def it_says_that_access_is_refused(self, open_again: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_KEY", "bm90IHRoZSBrZXk=")
        with pytest.raises(StorageDenied):
            open_again().write("a", b"1", if_version=None)
