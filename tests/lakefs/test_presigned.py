from __future__ import annotations

import pytest

from lakeplan.lakefs.answers import may_follow

SERVER = "https://lakefs.example.com"
MINIO = "https://minio.example.com:9000"


@pytest.mark.parametrize(
    ("namespace", "target"),
    [
        ("s3://lake/r", "https://lake.s3.amazonaws.com/r/_lakefs/x?X-Amz-Signature=1"),
        ("s3://lake/r", "https://lake.s3.eu-central-1.amazonaws.com/r/x?s"),
        ("s3://lake/r", "https://lake.s3-eu-west-1.amazonaws.com/r/x"),
        ("s3://lake/r", "https://lake.s3.dualstack.eu-west-1.amazonaws.com/r/x"),
        ("s3://lake/r", "https://s3.eu-central-1.amazonaws.com/lake/r/x?s"),
        ("s3://lake/r", "https://lake.s3.cn-north-1.amazonaws.com.cn/r/x"),
        ("s3://lake/r", f"{MINIO}/lake/r/x?s=1"),
        ("s3://lake/r", "https://lake.minio.example.com:9000/r/x?s=1"),
        ("s3://lake/r", f"{SERVER}/presigned/x"),
        ("gs://lake/r", "https://storage.googleapis.com/lake/r/x?X-Goog-Signature=1"),
        ("gs://lake/r", "https://lake.storage.googleapis.com/r/x"),
        ("https://acme.blob.core.windows.net/c/r", "https://acme.blob.core.windows.net/c/r%2Fx?sig=a%2Bb"),
    ],
)
def it_follows_to_the_storage(namespace: str, target: str) -> None:
    assert may_follow(target, server=SERVER, namespace=namespace, bound=["s3://no-host", MINIO])


@pytest.mark.parametrize(
    "namespace", ["s3://lake/r", "gs://lake/r", "https://acme.blob.core.windows.net/c/r"]
)
@pytest.mark.parametrize(
    "target",
    [
        "https://evil.s3.amazonaws.com/lake/x",
        "https://s3.amazonaws.com/evil/x",
        "https://s3.amazonaws.com/lake/../evil/x",
        "https://s3.amazonaws.com/lake/%2e%2E/evil/x",
        "https://s3.amazonaws.com/./lake/x",
        "https://s3.amazonaws.com/",
        "https://s3.amazonaws.com",
        "https://lake.s3.amazonaws.com.evil.example/r/x",
        "https://lake.s3.evil.example/r/x",
        "http://lake.s3.amazonaws.com/r/x",
        "https://lake.s3.amazonaws.com:444/r/x",
        "https://lake.s3.amazonaws.com@evil.example/r/x",
        "https://evil.example\\.s3.amazonaws.com/r/x",
        "https://evil.example%2f.s3.amazonaws.com/r/x",
        "https://evil.blob.core.windows.net/c/r/x",
        "http://acme.blob.core.windows.net/c/r/x",
        "https://storage.googleapis.com/evil/x",
        "http://storage.googleapis.com/lake/x",
        "http://minio.example.com:9000/lake/x",
        "https://minio.example.com/lake/x",
        "http://lakefs.example.com/x",
        "http://169.254.169.254/latest/meta-data",
        "http://[fd00:ec2::254]/latest/meta-data",
        "https://127.0.0.1/x",
        "file:///etc/passwd",
        "gopher://lake.s3.amazonaws.com/x",
        "",
    ],
)
def it_follows_to_no_other_host(namespace: str, target: str) -> None:
    assert not may_follow(target, server=SERVER, namespace=namespace, bound=[MINIO])


@pytest.mark.parametrize("namespace", ["", "local://x", "s3://la ke/r", "https://10.0.0.1/acct/c", "mem://x"])
def it_follows_nowhere_from_a_namespace_without_a_vendor(namespace: str) -> None:
    for target in (
        "https://s3.amazonaws.com/lake/x",
        "https://10.0.0.1/acct/c",
        "https://s3.amazonaws.com//x",
    ):
        assert not may_follow(target, server=SERVER, namespace=namespace)
