"""Branches over HTTP, read only: hidden ones, what is uncommitted on them, pull requests from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone

from lakeplan.errors import DataGone, FeatureMissing
from lakeplan.lakefs import answers
from lakeplan.lakefs.answers import PAGE, Fields, Malformed, check_globs, find, list_all, read, read_list
from lakeplan.lakefs.client import repository_metadata
from lakeplan.lakefs.transport import READS, Adapter, of_repository
from lakeplan.values.branches import LiveBranch, PullRequest, StagedChange, StagedData
from lakeplan.values.pins import may_be_pin

_EMPTY_RANGE = frozenset({416})


class LakeFSBranchReader(Adapter):
    """``lakeplan.lakefs.protocols.BranchReader``: no request but GET ever. May be used from several
    threads."""

    _ALLOWED = READS

    def list_live(self, repository: str) -> list[LiveBranch]:
        every = {b.id: b.commit_id for b in self._list(repository, "true")}
        # Read second: a branch made between the two is in neither answer's difference.
        shown = {b.id for b in self._list(repository, "false")}
        live = [LiveBranch(name, head, name not in shown) for name, head in sorted(every.items())]
        return [branch for branch in live if not may_be_pin(branch)]

    def _list(self, repository: str, hidden: str) -> Iterator[LiveBranch]:
        params = {"show_hidden": hidden}
        call = of_repository("GET", repository, "branches", operation="list branches", params=params)
        return list_all(
            self._transport, call, lambda fields: LiveBranch(fields.name("id"), fields.name("commit_id"))
        )

    def find_branch(self, repository: str, branch_id: str) -> str | None:
        call = of_repository("GET", repository, "branches", branch_id, operation="read a branch")
        branch = find(self._transport, call, answers.branch_of)
        return None if branch is None else branch.commit_id

    def staged(self, repository: str, branch_id: str) -> StagedData:
        call = of_repository(
            *("GET", repository, "branches", branch_id, "diff"),
            operation="read uncommitted changes",
            params={"amount": str(PAGE)},
        )
        return read(self._transport, call, _staged_of)

    def written_at(self, repository: str, branch_id: str, path: str) -> datetime | None:
        call = of_repository(
            *("GET", repository, "refs", branch_id, "objects", "stat"),
            operation="read when an object was written",
            params={"path": path, "user_metadata": "false"},
        )
        seconds = find(self._transport, call, lambda fields: fields.seconds("mtime"))
        return None if seconds is None else datetime.fromtimestamp(seconds, tz=timezone.utc)

    def open_pulls(self, repository: str) -> Iterator[PullRequest]:
        params = {"status": "open"}
        call = of_repository("GET", repository, "pulls", operation="list pull requests", params=params)
        try:
            yield from list_all(self._transport, call, _pull_of)
        except FeatureMissing:
            return  # a server from before pull requests has none

    def protected_patterns(self, repository: str) -> Iterator[str]:
        def parse(rules: list[Fields]) -> list[str]:
            patterns = [rule.glob("pattern") for rule in rules]
            check_globs(patterns, "the list")
            return patterns

        path, operation = ("settings", "branch_protection"), "read the branch protection rules"
        call = of_repository("GET", repository, *path, operation=operation)
        return iter(read_list(self._transport, call, parse))

    def metadata(self, repository: str) -> Mapping[str, str]:
        return repository_metadata(self._transport, repository)

    def readable_sample(self, repository: str, commit_id: str, count: int) -> tuple[int, int]:
        """One byte of each: HEAD and stat answer 200 for collected data too (lakefs/api.md)."""
        call = of_repository(
            *("GET", repository, "refs", commit_id, "objects", "ls"),
            operation="list objects of a commit",
            params={"amount": str(count), "user_metadata": "false"},
        )
        paths = read(
            self._transport,
            call,
            lambda fields: [Fields.of(item).name("path") for item in fields.items("results")],
        )
        return len(paths), sum(not self.readable(repository, commit_id, path) for path in paths)

    def readable(self, repository: str, commit_id: str, path: str) -> bool:
        """See ``ObjectPinger``."""
        call = of_repository(
            *("GET", repository, "refs", commit_id, "objects"),
            operation="read an object",
            params={"path": path},
            headers={"Range": "bytes=0-0"},
            accept=_EMPTY_RANGE,
        )
        try:
            self._transport.request(call)
        except DataGone:
            return False
        return True


connect_branch_reader = LakeFSBranchReader.connect


def _staged_of(fields: Fields) -> StagedData:
    found = []
    for item in fields.items("results"):
        change = Fields.of(item)
        found.append(StagedChange(change.name("path"), change.name("type"), change.integer("size_bytes", 0)))
    return StagedData(tuple(found), Fields.of(fields.data.get("pagination")).flag("has_more"))


def _pull_of(fields: Fields) -> PullRequest:
    if fields.text("status") not in ("open", "OPEN"):
        raise Malformed(f"a pull request is {fields.text('status')}, although only open ones were requested")
    return PullRequest(
        fields.name("id"),
        fields.name("source_branch"),
        fields.name("destination_branch"),
        fields.text("title", ""),
    )
