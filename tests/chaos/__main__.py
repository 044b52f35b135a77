"""The long run: ``make chaos CHAOS_ARGS="--seed 7 --steps 10000"``.

--seed N        the same seed does the same steps; by default a new one, which is printed
--steps N       how many (10,000)
--store NAME    folder, s3 (moto) or azurite
--world N       only this world of the seed, to see a violation again
--from-world N  begin with this world of the seed, to go on after a violation
--pins N        so many lives of pins instead, of 60 steps each
--taken-back [NAME ...]
                take back one fix after the other, and show at which step the checker notices
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.campaign import Counts, Lost, campaign
from tests.chaos.mirrors import STORES
from tests.chaos.pins import live
from tests.chaos.taken_back import FIXES, steps_until_caught


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--store", choices=tuple(STORES), default="folder")
    parser.add_argument("--world", type=int)
    parser.add_argument("--from-world", type=int, default=0)
    parser.add_argument("--pins", type=int, metavar="N")
    parser.add_argument("--taken-back", nargs="*", choices=(*FIXES, []), metavar="NAME")
    options = parser.parse_args()
    # what lakeplan warns about is its commands' own output; moto logs every request
    for name in ("lakeplan", "werkzeug"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if options.taken_back is not None:
        return _take_back(options.taken_back or list(FIXES), options.seed, options.steps or 2_000)
    if options.pins is not None:
        return _pins(options.seed, options.pins)
    return _run(options.seed, options.steps or 10_000, options.store, options.world, options.from_world)


def _pins(seed: int, lives: int) -> int:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + lives):
        with tempfile.TemporaryDirectory(prefix="lakeplan-chaos-") as folder:
            try:
                life = live(Path(folder), number, steps=60)
            except AssertionError as error:
                print(f"VIOLATION with --seed {number} --pins 1: {error}", file=sys.stderr)
                return 1
        seen += life.ends + life.watcher.seen
        print(f"{number - seed + 1:,} lives: {dict(seen)}", flush=True)
    return 0


def _run(seed: int, steps: int, store: str, world: int | None, first: int) -> int:
    print(f"seed {seed}, {steps:,} steps, {store}", flush=True)
    counts, began = Counts(), time.process_time()
    try:
        with STORES[store]() as mirror:
            campaign(
                *(seed, steps),
                mirror=mirror,
                only_world=world,
                first_world=first,
                counts=counts,
                lived=_progress,
            )
    except Lost as lost:
        print(f"VIOLATION {lost}", file=sys.stderr)
        return 1
    finally:
        took = time.process_time() - began
        print(f"seed {seed}: {counts.text()}")
        print(f"{took:.0f} s of one core, {1000 * took / max(1, counts.steps):.0f} ms a step")
    print("nothing was lost, and every report was true")
    return 0


def _progress(world: int, counts: Counts) -> None:
    if world % 25 == 24:
        print(f"after world {world}: {counts.steps:,} steps, {counts.deleting:,} deleted", flush=True)


def _take_back(names: list[str], seed: int, steps: int) -> int:
    missed = 0
    for name in names:
        found = steps_until_caught(name, seed, steps)
        missed += found is None
        text = f"not caught in {steps:,} steps" if found is None else f"step {found[0]:,}: {found[1]}"
        print(f"{FIXES[name].line:4} {name}: {text}", flush=True)
    return 1 if missed else 0


sys.exit(main())
