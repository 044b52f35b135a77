"""The workflows that ``lakeplan init --ci`` writes: those of ``examples/ci``, for one tree and cloud."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lakeplan import __version__
from lakeplan.errors import UsageError
from lakeplan.tree.schemas import shipped

Ci = Literal["github", "gitlab", "none"]
Cloud = Literal["aws", "azure", "gcp", "none"]

_ACTION = ".github/actions/lakeplan"
INCLUDING, INCLUDED = ".gitlab-ci.yml", "ci/lakeplan.gitlab-ci.yml"
_PLACES: Mapping[Ci, Mapping[str, str]] = {
    "github": {
        ".github/workflows/lakeplan.yml": "github/lakeplan.yml",
        ".github/workflows/lakeplan-nightly.yml": "github/nightly.yml",
        ".github/workflows/lakeplan-between.yml": "github/between.yml",
        ".github/workflows/lakeplan-comments.yml": "github/comments.yml",
    },
    "gitlab": {INCLUDED: "gitlab/lakeplan.gitlab-ci.yml"},
    "none": {},
}
_AWS = """\
          aws-role: ${{ vars.LAKEPLAN_AWS_ROLE }}
          aws-region: ${{ vars.LAKEPLAN_AWS_REGION }}
"""
_AZURE = """\
          azure-client-id: ${{ vars.LAKEPLAN_AZURE_CLIENT_ID }}
          azure-tenant-id: ${{ vars.LAKEPLAN_AZURE_TENANT_ID }}
"""
_GCP = """\
          gcp-provider: ${{ vars.LAKEPLAN_GCP_PROVIDER }}
          gcp-service-account: ${{ vars.LAKEPLAN_GCP_SERVICE_ACCOUNT }}
"""
_INPUTS: Mapping[Cloud, str] = {"aws": _AWS, "azure": _AZURE, "gcp": _GCP, "none": ""}
_AT = re.compile(r"https?://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?@([0-9a-f]{40})")
_VERSION = re.compile(r"\d[\w.!+]*")


@dataclass(frozen=True)
class Source:
    """The source from which jobs install lakeplan. ``package`` is pip's; ``version`` the action's input,
    ``action`` what ``uses`` names. The action is copied into the repository unless ``action`` is in another
    one."""

    package: str
    version: str
    action: str = f"./{_ACTION}"


def source_of(text: str | None) -> Source:
    """A version, a git URL with a commit, or a path in the repository. Raises UsageError, also for a URL that
    may contain a secret, because the workflows contain it."""
    if text is None or _VERSION.fullmatch(text):
        version = text or __version__
        return Source(f"lakeplan=={version}", version)
    if _has_secret(text):
        raise UsageError(
            "--source is a URL with a user, a password or a query, which may be a secret",
            hint="Remove them from the URL. Anyone who can read the workflows could see the secret.",
        )
    if text.startswith("git+"):
        url, _, commit = text.removeprefix("git+").rpartition("@")
        if not re.fullmatch(r"[0-9a-f]{40}", commit) or not re.fullmatch(r"(https|ssh)://[\w.@:/~+-]+", url):
            raise UsageError(
                f"--source {text} is not a git URL with a full commit id",
                hint="Use git+https://HOST/OWNER/lakeplan@COMMIT with the 40 digits of the commit id. A"
                " tag is not accepted, because it can be moved.",
            )
        hosted = _AT.fullmatch(f"{url}@{commit}")
        return Source(text, text, f"{hosted[1]}@{commit}") if hosted else Source(text, text)
    path = Path(text)
    if path.is_absolute() or ".." in path.parts or not re.fullmatch(r"[\w./ -]+", text):
        raise UsageError(
            f"--source {text} is not a version, a git URL or a path in the repository",
            hint="Use a version, git+https://HOST/OWNER/lakeplan@COMMIT, or a path such as"
            " ./vendor/lakeplan.",
        )
    place = f"./{path.as_posix()}"
    return Source(place, place)


def _has_secret(text: str) -> bool:
    """Return whether a URL has a query, a password, or a user name that may be a token. SSH needs a user."""
    scheme, separator, rest = text.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    return bool(separator) and ("?" in rest or ":" in user or (bool(at) and not scheme.endswith("ssh")))


def cloud_of(text: str | None, state_url: str | None) -> Cloud:
    """The requested cloud, else the cloud of the state."""
    if text is not None:
        clouds: Mapping[str, Cloud] = {name: name for name in _INPUTS}
        if text not in clouds:
            raise UsageError(f"unknown cloud {text!r}", hint=f"Use one of {', '.join(_INPUTS)}.")
        return clouds[text]
    url = state_url or ""
    if url.startswith("s3://"):
        return "aws"
    if url.startswith("gs://"):
        return "gcp"
    return "azure" if re.match(r"https://[^/]*\.blob\.", url) else "none"


def branch_of(text: str | None, default: str | None) -> str:
    """The branch whose merges are applied: the requested one, else the host's default, else main. Raises
    UsageError for a name that a workflow cannot contain, because GitHub reads branches as globs."""
    branch = text or default or "main"
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", branch):
        raise UsageError(
            f"a workflow cannot use the branch name {branch!r}",
            hint="Specify another branch with --branch. Its name may contain letters, digits, dots,"
            " dashes, slashes and underscores.",
        )
    return branch


def workflows(ci: Ci, *, tree: str, server: str, source: Source, cloud: Cloud, branch: str) -> dict[str, str]:
    """The files by their path in the git repository. ``tree`` is the tree's folder there, ``server`` the name
    of its first server, whose variables they read. On GitLab the default branch is a variable."""
    files = {}
    first = server.replace("-", "_").upper()
    for place, name in _PLACES[ci].items():
        text = shipped(f"examples/ci/{name}").read_text(encoding="utf-8")
        text = text.replace("LAKEPLAN_PROD_", f"LAKEPLAN_{first}_").replace(
            "branches: [main]", f'branches: ["{branch}"]'
        )
        change = _github if ci == "github" else _gitlab
        files[place] = change(text, tree or ".", source, cloud)
    if ci == "github" and source.action.startswith("./"):
        files[f"{_ACTION}/action.yml"] = _action().read_text(encoding="utf-8")
    if ci == "gitlab":
        files[INCLUDING] = f"include:\n  - local: {INCLUDED}\n"
    return files


def _github(text: str, tree: str, source: Source, cloud: Cloud) -> str:
    text = text.replace(_AWS, _INPUTS[cloud])
    if cloud == "none":
        text = text.replace(" id-token: write,", "").replace(", id-token: write", "")
    text = text.replace('tree: "."', f'tree: "{tree}"').replace(
        f"uses: ./{_ACTION}", f"uses: {source.action}"
    )
    if source.action.startswith("./"):
        return text.replace(f'version: "{__version__}"', f'version: "{source.version}"')
    text = re.sub(r'\n +version: "[^"]*"', "", text)
    return re.sub(r', version: "[^"]*"', "", text)


_TOKEN_AWS = """\
    # The cloud's library exchanges the job's token for credentials.
    - umask 077; printf %s "$LAKEPLAN_ID_TOKEN" > /tmp/lakeplan-id-token
    - export AWS_WEB_IDENTITY_TOKEN_FILE=/tmp/lakeplan-id-token
"""
_AUD_AWS = """\
  id_tokens:
    LAKEPLAN_ID_TOKEN:
      aud: https://gitlab.com
"""
_ABOUT_AWS = (
    "# - for a state in S3: AWS_DEFAULT_REGION, and AWS_ROLE_ARN, the role that jobs assume through OIDC\n"
)
_ABOUT: Mapping[Cloud, str] = {
    "aws": _ABOUT_AWS,
    "azure": "# - for a state in Azure: AZURE_CLIENT_ID and AZURE_TENANT_ID, to sign in through OIDC\n",
    "gcp": "# - for a state in Google Cloud Storage: GOOGLE_APPLICATION_CREDENTIALS, an OIDC credential file"
    " whose\n#   source is /tmp/lakeplan-id-token, and LAKEPLAN_GCP_AUDIENCE, the provider's audience\n",
    "none": "",
}


def _gitlab(text: str, tree: str, source: Source, cloud: Cloud) -> str:
    text = text.replace(f"PACKAGE: lakeplan=={__version__}", f"PACKAGE: {source.package}")
    text = text.replace('TREE: "."', f'TREE: "{tree}"').replace(_ABOUT_AWS, _ABOUT[cloud])
    if cloud == "none":
        return text.replace(_AUD_AWS, "").replace(_TOKEN_AWS, "")
    if cloud == "azure":
        text = text.replace("aud: https://gitlab.com", "aud: api://AzureADTokenExchange")
        text = text.replace("AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE")
        text = text.replace('--quiet "$PACKAGE"', '--quiet "$PACKAGE" azure-identity')
    if cloud == "gcp":
        text = text.replace("aud: https://gitlab.com", "aud: $LAKEPLAN_GCP_AUDIENCE")
        text = text.replace("    - export AWS_WEB_IDENTITY_TOKEN_FILE=/tmp/lakeplan-id-token\n", "")
    return text


def _action() -> Path:
    """Beside the workflows when installed, at the top of a checkout."""
    installed = shipped("examples/ci/github/action.yml")
    return installed if installed.is_file() else shipped("action.yml")
