"""Notifications of a command: channels of the tree, and URLs of the environment."""

from __future__ import annotations

from collections.abc import Mapping

from lakeplan.cli.who import now_utc
from lakeplan.review.notify import Answer, Clocks, Notifier
from lakeplan.values.notify import (
    Channel,
    ChannelKind,
    Message,
    NoPublisher,
    NotifyConfig,
    Publisher,
)


def publisher_of(config: NotifyConfig | None, environ: Mapping[str, str]) -> Publisher:
    if config is None:
        return NoPublisher()
    return Notifier(config, _Posting(environ), _payload, Clocks(now_utc), link=run_link(environ))


class _Posting:
    """What speaks HTTP is imported only when something is sent."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __call__(self, channel: Channel, payload: bytes, id: str, seconds: float) -> Answer:
        from lakeplan.review.webhook import Webhooks

        return Webhooks(self._environ)(channel, payload, id, seconds)


def _payload(kind: ChannelKind, message: Message) -> bytes:
    from lakeplan.output.payloads import payload

    return payload(kind, message)


def run_link(environ: Mapping[str, str]) -> str:
    """The address of this CI run on GitHub or GitLab; "" elsewhere."""
    server, repository, run = (
        environ.get(f"GITHUB_{word}", "") for word in ("SERVER_URL", "REPOSITORY", "RUN_ID")
    )
    if server and repository and run:
        return f"{server}/{repository}/actions/runs/{run}"
    return environ.get("CI_JOB_URL", "")
