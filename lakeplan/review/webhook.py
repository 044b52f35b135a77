"""Posts to webhooks. Their URLs are secrets, which come from the environment and never appear in messages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import requests
from urllib3.exceptions import NewConnectionError

from lakeplan.lakefs.credentials import Secret
from lakeplan.lakefs.transport import NoAuth, new_session, read_whole, requested_wait
from lakeplan.limits import MESSAGE_BYTES, TooLarge
from lakeplan.review.notify import Answer
from lakeplan.values.bodies import TooSlow, within
from lakeplan.values.notify import Channel, ChannelKind
from lakeplan.values.urls import BadUrl, parse_signed_url

ID_HEADER = "Idempotency-Key"
_NOT_SENT = (requests.exceptions.ConnectTimeout, requests.exceptions.ProxyError)


@dataclass(frozen=True)
class Webhooks:
    """A ``Post``. ``environ`` has a URL for each channel."""

    environ: Mapping[str, str] = field(repr=False)

    def __call__(self, channel: Channel, payload: bytes, id: str, seconds: float) -> Answer:
        url = url_of(channel, self.environ)
        if isinstance(url, Answer):
            return url
        try:
            response = within(seconds, lambda: _post(url, payload, id, seconds))
        except (TooSlow, TooLarge):
            return Answer("the webhook's response was too slow or too large", maybe=True, again=True)
        except requests.exceptions.SSLError:
            return Answer("the TLS connection failed")
        except requests.RequestException as error:
            # The library's message contains the URL.
            if isinstance(error, _NOT_SENT) or _is_unconnected(error):
                return Answer("the connection failed", again=True)
            return Answer(f"the request failed ({type(error).__name__})", maybe=True, again=True)
        return _judge(channel.kind, response)


def url_of(channel: Channel, environ: Mapping[str, str]) -> Secret | Answer:
    """The URL of a channel, or why there is none. Plain http is accepted only for this machine."""
    text = environ.get(channel.variable, "").strip()
    if not text:
        return Answer(f"{channel.variable} is not set")
    try:
        url = parse_signed_url(text)
    except BadUrl as error:
        return Answer(f"{channel.variable} is not a usable URL: {error}")
    if url.scheme != "https" and not url.is_loopback:
        return Answer(f"{channel.variable} must be an https URL")
    return Secret(text)


def _post(url: Secret, payload: bytes, id: str, seconds: float) -> requests.Response:
    with new_session() as session:
        response = session.post(
            url.reveal(),
            data=payload,
            headers={"Content-Type": "application/json", ID_HEADER: id},
            auth=NoAuth(),
            timeout=(min(5.0, seconds), seconds),
            allow_redirects=False,
            stream=True,
        )
        read_whole(response, MESSAGE_BYTES, time.monotonic)
        return response


def _is_unconnected(error: requests.RequestException) -> bool:
    """Return whether no connection was made, so that nothing was sent."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, NewConnectionError)


def _judge(kind: ChannelKind, response: requests.Response) -> Answer:
    """Return whether the channel accepted the message. The text of its response is untrusted and not
    repeated."""
    status = response.status_code
    if status in (429, 503):
        return Answer(
            f"the webhook is overloaded (status {status})",
            again=True,
            wait=requested_wait(response, time.time()) or 0.0,
        )
    if 300 <= status < 400:
        return Answer(f"the webhook redirects (status {status}), and lakeplan does not follow redirects")
    if not 200 <= status < 300:
        return Answer(f"the webhook returned status {status}", maybe=status >= 500, again=status >= 500)
    answer = response.content[:500].decode("utf-8", "replace").strip().lower()
    if kind is ChannelKind.SLACK and answer not in ("", "ok") and '"ok":true' not in answer.replace(" ", ""):
        return Answer("the webhook did not return ok")
    if kind is ChannelKind.TEAMS and "fail" in answer:
        return Answer("the webhook reported a failure")
    return Answer()
