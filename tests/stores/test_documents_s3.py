from __future__ import annotations

import http.server
import urllib.request
from collections.abc import Iterator

import pytest

from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, WriteConflict
from lakeplan.stores.open import open_state
from tests.serving import serve
from tests.storage_servers import s3_client
from tests.stores.documents_contract import Open, StateContract


class DescribeS3State(StateContract):
    @pytest.fixture
    def open_again(self, s3_bucket: str) -> Open:
        return lambda: open_state(f"s3://{s3_bucket}/ops/lakeplan")

    def it_leaves_no_probe_behind(self, s3_bucket: str, open_again: Open) -> None:
        open_again().write("a", b"1", if_version=None)
        listed = s3_client().list_objects_v2(Bucket=s3_bucket)
        assert [item["Key"] for item in listed["Contents"]] == ["ops/lakeplan/a"]

    def it_names_a_record_once_that_a_listing_repeats(
        self, open_again: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = open_again()
        state.write("a", b"1", if_version=None)
        store = state._store  # type: ignore[attr-defined]
        listed = [*store.list_objects()]
        monkeypatch.setattr(store, "list_objects", lambda prefix: iter(listed * 2))
        assert state.list_keys() == ["a"]

    def it_reads_a_deleted_record_that_is_written_again_at_the_same_moment(
        self, s3_bucket: str, open_again: Open
    ) -> None:
        """Such as a lease that another run takes: it was no damaged response."""
        state = open_again()
        state.delete("a", if_version=state.write("a", b"1", if_version=None))
        client = state._store._client.get()  # type: ignore[attr-defined]

        def write(**_: object) -> None:
            s3_client().put_object(Bucket=s3_bucket, Key="ops/lakeplan/a", Body=b"2")

        client.meta.events.register_last("before-call.s3.HeadObject", write)
        record = state.read("a")
        assert record is not None
        assert record.data == b"2"

    def it_says_that_the_bucket_is_missing(self, s3_bucket: str) -> None:
        state = open_state(f"s3://{s3_bucket}-is-not-there/x")
        for attempt in (lambda: state.read("a"), lambda: state.write("a", b"1", if_version=None)):
            with pytest.raises(StorageNotFound, match="bucket or container does not exist"):
                attempt()

    def it_says_that_credentials_are_missing(self, open_again: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(StorageDenied):
            open_again().write("a", b"1", if_version=None)


class Proxy(http.server.BaseHTTPRequestHandler):
    """A proxy before moto that spoils the responses that a test chooses."""

    protocol_version = "HTTP/1.1"  # answers "Expect: 100-continue", so that botocore need not wait
    target = ""
    ignore: frozenset[str] = frozenset()
    refuse: frozenset[str] = frozenset()
    lose_answers_to = ""

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command in self.refuse:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() not in self.ignore | {"expect"}}
        headers.setdefault("Content-Type", "application/octet-stream")
        request = urllib.request.Request(
            self.target + self.path, data=body or None, headers=headers, method=self.command
        )
        try:
            with urllib.request.urlopen(request) as answer:
                status, fields, data = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, fields, data = error.code, error.headers, error.read()
        kind = type(self)
        if kind.lose_answers_to and self.command == "PUT" and self.path.endswith(kind.lose_answers_to):
            kind.lose_answers_to = ""
            status, data = 503, b"<Error><Code>SlowDown</Code></Error>"
        self.send_response(status)
        for name in ("ETag", "Content-Type", "Last-Modified"):
            if name in fields:
                self.send_header(name, fields[name])
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_DELETE = _forward

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def proxy(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Proxy]]:
    class Own(Proxy):
        target = s3_endpoint

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own)
    with serve(server):
        monkeypatch.setattr(Own, "address", f"http://127.0.0.1:{server.server_port}", raising=False)
        yield Own


@pytest.mark.parametrize("header", ["if-none-match", "if-match"])
def it_refuses_a_store_that_ignores_conditions(s3_bucket: str, proxy: type[Proxy], header: str) -> None:
    proxy.ignore = frozenset({header})
    state = open_state(f"s3://{s3_bucket}/x", endpoint_url=proxy.address)  # type: ignore[attr-defined]
    with pytest.raises(StorageError, match="ignores If-") as caught:
        state.write("a", b"1", if_version=None)
    assert header in caught.value.message.lower()
    assert state.read("a") is None


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def it_names_the_permissions_that_the_write_test_needs(
    s3_bucket: str, proxy: type[Proxy], method: str
) -> None:
    proxy.refuse = frozenset({method})
    state = open_state(f"s3://{s3_bucket}/x", endpoint_url=proxy.address)  # type: ignore[attr-defined]
    with pytest.raises(StorageDenied, match="write test") as caught:
        state.write("a", b"1", if_version=None)
    assert "read, create, replace and delete its objects (docs/permissions.md)" in caught.value.hint


def it_knows_its_own_write_when_the_answer_was_lost(s3_bucket: str, proxy: type[Proxy]) -> None:
    state = open_state(f"s3://{s3_bucket}/x", endpoint_url=proxy.address)  # type: ignore[attr-defined]
    first = state.write("a", b"1", if_version=None)
    proxy.lose_answers_to = "/a"
    second = state.write("a", b"2", if_version=first)
    found = state.read("a")
    assert found is not None
    assert (found.data, found.version) == (b"2", second)


def it_does_not_take_another_s_record_for_its_own_after_a_lost_answer(
    s3_bucket: str, proxy: type[Proxy]
) -> None:
    state = open_state(f"s3://{s3_bucket}/x", endpoint_url=proxy.address)  # type: ignore[attr-defined]
    first = state.write("a", b"1", if_version=None)
    state.write("a", b"of another", if_version=first)
    proxy.lose_answers_to = "/a"
    with pytest.raises(WriteConflict):
        state.write("a", b"2", if_version=first)
