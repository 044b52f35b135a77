from __future__ import annotations

import ast
import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from lakeplan import limits
from lakeplan.limits import TooLarge, parse_json
from lakeplan.values.local import read_file
from lakeplan.values.units import number_of


class DescribeJson:
    @pytest.mark.parametrize("document", [{"a": [1, 2.5, "x[{", None, True]}, [], "text", 3, {}])
    def it_reads_documents(self, document: object) -> None:
        text = json.dumps(document)
        assert parse_json(text) == parse_json(text.encode()) == document

    @pytest.mark.parametrize("depth", [70, 900, 200_000])
    @pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
    def it_refuses_brackets_in_brackets(self, depth: int, opened: str, closed: str) -> None:
        with pytest.raises(TooLarge, match="64 levels"):
            parse_json(opened * depth + "0" * (opened != "[") + closed * depth)

    def it_reads_64_levels_and_many_brackets_beside_each_other(self) -> None:
        assert parse_json("[" * 64 + "]" * 64)
        assert len(parse_json("[" + "[],{}," * 10_000 + "1]")) == 20_001

    def it_refuses_a_document_of_millions_of_tiny_values(self) -> None:
        started = time.monotonic()
        with pytest.raises(TooLarge, match="3,000,000 values"):
            parse_json(b"[" + b"[]," * 2_000_000 + b"0]")
        assert time.monotonic() - started < 5

    def it_refuses_more_bytes_than_the_limit(self) -> None:
        with pytest.raises(TooLarge, match="larger than the limit of 2 KiB"):
            parse_json(" " * 3000 + "1", limit=2048)

    @pytest.mark.parametrize(("character", "most"), [("a", 100), ("é", 50), ("😀", 25)])
    def it_counts_the_memory_that_wide_characters_take(
        self, character: str, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "TEXT_BYTES", 100)
        for size, is_taken in ((most, True), (most + 1, False)):
            text = f'"{character}'.encode()
            text += b"a" * (size - len(text) - 1) + b'"'
            if is_taken:
                assert parse_json(text)
            else:
                with pytest.raises(TooLarge, match="takes more memory than"):
                    parse_json(text)

    @pytest.mark.parametrize("text", ["NaN", "[Infinity]", "1e999", "[-1e400]", "9" * 5000])
    def it_refuses_numbers_that_are_none(self, text: str) -> None:
        with pytest.raises(ValueError):
            parse_json(text)


class DescribeFiles:
    def it_reads_a_regular_file_up_to_the_limit(self, tmp_path: Path) -> None:
        file = tmp_path / "plan.json"
        file.write_bytes(b"12345")
        assert read_file(file, 5) == b"12345"
        with pytest.raises(TooLarge, match="larger than the limit of 4 bytes"):
            read_file(file, 4)

    def it_refuses_devices_pipes_and_folders_at_once(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        started = time.monotonic()
        for place in ("/dev/zero", "/dev/null", pipe, tmp_path):
            with pytest.raises((TooLarge, OSError)):
                read_file(place)
        assert time.monotonic() - started < 1

    def it_does_not_trust_the_size_of_a_file(self) -> None:
        with pytest.raises(TooLarge):
            read_file("/proc/cpuinfo", 10)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("1.0", None),
        (" 1", None),
        ("²", None),
        ("٣", None),
    ],
)
def it_reads_numbers_of_a_size_that_anything_can_have(text: str, number: int | None) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize(
    ("size", "text"),
    [(5, "5 bytes"), (limits.KIB * 4, "4 KiB"), (256 * limits.MIB, "256 MiB"), (1 << 30, "1 GiB")],
)
def it_writes_sizes(size: int, text: str) -> None:
    assert limits.size_text(size) == text


def it_gives_every_limit_a_name_of_its_own() -> None:
    tree = ast.parse(Path(limits.__file__).read_text(encoding="utf-8"))
    stored = (node for each in tree.body if isinstance(each, ast.Assign) for node in ast.walk(each))
    names = Counter(n.id for n in stored if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    assert [name for name, count in names.items() if count > 1] == []
