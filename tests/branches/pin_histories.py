"""Random lives of repositories with pins, each write judged by the literal walks.

``python -m tests.branches.pin_histories --count 100000 [--seed N]`` runs many.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random

from lakeplan.branches.pins import (
    Change,
    History,
    PinRules,
    State,
    Step,
    Write,
    blocking_rules,
    required_pins,
    safe_change,
    with_needed_days,
    with_pins,
    without_entries,
)
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import to_us
from lakeplan.values.pins import Kept, Pin, is_pin_name
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import Hold
from tests.retention.literal import (
    DAY,
    NOW,
    ZONES,
    World,
    literal_documented_walk,
    literal_server_walk,
)

EVERYTHING = PinRules(tags=("*",), holds=True, at_risk=True, newest=(Kept("b0", 2, 2, 1, 1),))


class Life:
    """One repository: commits are made, branches come and go, rules change, and pins follow."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.zone = self.random.choice(ZONES)
        self.commits: list[Commit] = []
        self.tags: list[Tag] = []
        self.branches: dict[str, str] = {}
        self.pins: tuple[Pin, ...] = ()
        self.made = 0
        self.lost = False
        """Whether the rules of pins were lost since lakeplan last ran."""
        self.outcomes: Counter[str] = Counter()
        self.ahead = self.random.random() < 0.2
        self.no_days = self.random.random() < 0.2
        """Whether the default may be 0 days or less, which somebody set by hand."""
        for _ in range(self.random.randint(1, 9)):
            self._commit(self.random.choice((None, *self.branches)))
        self.desired = self._rules()
        self.stored: GcRules | None = self.random.choice((None, self._rules()))

    def run(self) -> Counter[str]:
        for _ in range(3):
            self._synchronise()
            for _ in range(self.random.randint(0, 4)):
                self._happens()
                self._judge_between()
        return self.outcomes

    # What others do

    def _happens(self) -> None:
        names = sorted(self.branches)
        at_pins = [name for name in names if self.branches[name] in {pin.commit_id for pin in self.pins}]
        match self.random.randrange(10):
            case 0 | 1:
                self._commit(self.random.choice(names))
            case 2:
                self.branches[f"b{self.random.randrange(5)}"] = self.random.choice(self.commits).id
            case 3 if len(names) > 1:
                del self.branches[self.random.choice(names)]
            case 4:
                self.desired = self._rules()
            case 5:
                self.tags = [tag for tag in self.tags if self.random.random() < 0.6]
            case 6 if at_pins and len(at_pins) < len(names):
                for name in at_pins:
                    del self.branches[name]
            case 7 if self.pins:
                # two from one tag, as of a fix that is tried twice
                at = self.random.choice(self.pins).commit_id
                self.branches.update({f"b{n}": at for n in self.random.sample(range(5), 2)})
            case 8 if self.stored is not None and self.pins:
                # somebody sets rules by hand, and the rules of pins are lost
                self.stored, self.lost = self._rules(), True
            case _ if self.pins:
                # a branch is made where a pin stands, and perhaps goes on from there
                name = f"b{self.random.randrange(5)}"
                self.branches[name] = self.random.choice(self.pins).commit_id
                if self.random.random() < 0.5:
                    self._commit(name)

    def _commit(self, branch: str | None) -> None:
        random = self.random
        parents = [self.branches[branch]] if branch else []
        while parents and len(parents) < 4 and random.random() < 0.2:
            parents.append(random.choice(self.commits).id)
        self.made += 1
        youngest = -12 if self.ahead else 0  # clocks that were ahead
        age = random.randint(youngest, 12) * DAY + random.choice((0, 0, 1, -1))
        # ids in random order: twins and the order of walks depend on them
        id = f"{random.randrange(16**10):010x}{self.made:06x}"
        meta = f"m{random.randrange(self.made)}" if random.random() < 0.2 else f"m{self.made}"
        version = 0 if random.random() < 0.1 else 1
        self.commits.append(Commit(id, to_us(NOW) - age, meta, tuple(parents), version))
        self.branches[branch or f"b{random.randrange(5)}"] = id
        if random.random() < 0.3:
            self.tags.append(Tag(f"t{self.made}", id))

    def _rules(self) -> GcRules:
        days = [1, 2, 3, 5, 8, 30]
        own = {f"b{n}": self.random.choice(days) for n in range(5) if self.random.random() < 0.5}
        return GcRules(self.random.choice([*days, -2, 0] if self.no_days else days), own)

    # What lakeplan does

    def _refs(self, pins: Iterable[Pin] = ()) -> Refs:
        branches = tuple(Branch(name, head) for name, head in sorted(self.branches.items()))
        return with_pins(Refs(tuple(self.commits), branches, tuple(self.tags)), pins)

    def _synchronise(self) -> None:
        refs = self._refs()
        moments = [NOW + timedelta(days=days) for days in (0, 1, 4, 9)]
        history = History(refs, CommitGraph.from_refs(refs), self.desired, moments, self.zone)
        assert not blocking_rules(self.desired)
        holds = [Hold("commit", self.random.choice(self.commits).id)] if self.random.random() < 0.3 else []
        asked = self.random.choice((EVERYTHING, EVERYTHING, EVERYTHING, PinRules(tags=("*",)), PinRules()))
        want = tuple(required_pins(history, asked, holds, self.pins))
        have = with_needed_days(history.graph, self.pins)
        change, loss = safe_change(history, Change(self.stored, self.desired, have, want))
        if loss is not None:
            self.outcomes["refused"] += 1
            return
        self.outcomes["changed" if change.steps() else "nothing to do"] += 1
        self.outcomes["pins"] += len(change.new)
        self._judge(history, change)
        done = change.steps()
        if done and self.random.random() < 0.3:
            # killed somewhere
            done = done[: self.random.randint(1, len(done))]
            self.outcomes["killed"] += 1
        self.lost &= len(done) < len(change.steps())
        if done:
            self.stored, self.pins = done[-1].after.rules, done[-1].after.pins

    def _judge(self, history: History, change: Change) -> None:
        """Every state after a write keeps what it must, by the literal walks, also when a branch goes."""
        for removed in (None, *self.branches):
            if removed is not None and len(self.branches) == 1:
                continue
            shares = removed is not None and self.branches[removed] in {
                pin.commit_id for pin in (*change.have, *change.want)
            }
            if removed is not None and not shares:
                continue
            states = [(step, after) for step in change.steps() for after in between(change, step)]
            for step, after in states:
                for moment in history.moments:
                    kept = self._kept(after.rules, after.pins, moment, removed)
                    if step.write in (Write.ENTRIES, Write.CREATE):
                        must = [self._kept(change.stored, change.have, moment, removed)]
                    else:
                        pinned = {pin.commit_id for pin in change.want}
                        must = [self._kept(self.desired, (), moment, removed), (pinned, pinned)]
                    for server, documented in must:
                        assert server <= kept[0], (step.write, removed, server - kept[0])
                        assert documented <= kept[1], (step.write, removed, documented - kept[1])

    def _judge_between(self) -> None:
        """Until lakeplan runs again, pins cost the server's walk nothing either, whatever others did."""
        if self.stored is not None and not self.lost:
            bare = without_entries(self.stored, [name for name in self.stored.branches if is_pin_name(name)])
            without, _ = self._kept(bare, (), NOW, None)
            assert without <= self._kept(self.stored, self.pins, NOW, None)[0], self.branches

    def _kept(
        self, rules: GcRules | None, pins: Iterable[Pin], moment: object, removed: str | None
    ) -> tuple[set[str], set[str]]:
        if rules is None:
            everything = {commit.id for commit in self.commits}
            return everything, everything
        refs = self._refs(pins)
        refs = replace(refs, branches=tuple(b for b in refs.branches if b.id != removed))
        world = World(refs, rules, moment, self.zone)  # type: ignore[arg-type]
        return literal_server_walk(world), set(literal_documented_walk(world))


def between(change: Change, step: Step) -> Iterator[State]:
    """The state after a write; of deletions after each."""
    if step.write is Write.DELETE:
        for left in range(1, len(change.retired)):
            yield State(step.after.rules, (*change.want, *change.retired[left:]))
    yield step.after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    seen: Counter[str] = Counter()
    for n in range(given.count):
        try:
            seen += Life(given.seed + n).run()
        except BaseException:
            print(f"seed {given.seed + n}")
            raise
        if (n + 1) % 1_000 == 0:
            print(f"{n + 1:,} histories: {dict(seen)}", flush=True)


if __name__ == "__main__":
    main()
