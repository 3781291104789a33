"""What `history_check` has to say of a history: counts, times, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

SHOWN = (
    "operations",
    "acknowledged",
    "lost",
    "duplicated",
    "reordered",
    "windows sent again",
    "overtaken",
    "gaps",
    "vanished",
    "two values",
    "reads skipped",
    "read from followers",
    "latest offsets",
    "latest went back",
    "replicas",
    "replicas differ",
    "assignments",
    "commits",
    "commits lost",
    "commits invented",
    "commits of the past",
    "two owners",
    "not resumed",
    "unread",
    "refused",
    "stalled",
    "ended by itself",
    "did not stop",
    "error traces",
)
SHOWN_OF_A_KIND = 5


@dataclass
class Verdict:
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(kind, text)"""
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    bites: Counter[str] = field(default_factory=Counter)
    """Of the faults of disks, by kind: how many were felt, because the disk was used while it was broken."""
    hits: Counter[str] = field(default_factory=Counter)
    """... and how often."""
    struck_unsettled: int = 0
    acknowledged_in: Counter[int] = field(default_factory=Counter)
    """Records by partition."""
    acknowledged_by: Counter[str] = field(default_factory=Counter)
    """... and by producer."""
    commits: Counter[str] = field(default_factory=Counter)
    """By group, like the assignments."""
    assignments: Counter[str] = field(default_factory=Counter)
    left_out: list[str] = field(default_factory=list)
    """Weakens what the rest says, and so belongs beside it."""
    longest_pause_ms: int = 0
    """Without an acknowledgement in some partition, while min.insync.replicas were there or coming back."""
    longest_total_pause_ms: int = 0
    """... whatever was broken."""

    @property
    def is_good(self) -> bool:
        return not self.problems

    def problem(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        self.problems.append((kind, text))

    def report(self) -> str:
        return "\n".join([*self._counted(), *self._faults(), *self._pauses(), *self._left_out(), *self._problems()])

    def _counted(self) -> Iterator[str]:
        for name in SHOWN:
            yield f"{name:<24}{self.counts[name]}"
        if self.acknowledged_in:
            least, most = min(self.acknowledged_in.values()), max(self.acknowledged_in.values())
            yield f"{'  in a partition':<24}{least} to {most} acknowledged"
        of_each = (
            ("acknowledged to", self.acknowledged_by),
            ("committed in groups", self.commits),
            ("assigned in groups", self.assignments),
        )
        for what, counts in of_each:
            if counts:
                told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
                yield f"{f'  {what}':<24}{told}"

    def _faults(self) -> Iterator[str]:
        yield f"{'faults':<24}{self.faults.total()}"
        for kind, count in sorted(self.faults.items()):
            felt = f"  ({self.bites[kind]} felt, {self.hits[kind]} times)" if kind in self.hits else ""
            yield f"  {kind:<36}{count}{felt}"
        yield f"{'struck while unsettled':<24}{self.struck_unsettled} of {self.faults.total()}"

    def _pauses(self) -> Iterator[str]:
        yield (
            f"{'longest unavailability':<24}{self.longest_pause_ms} ms without an acknowledgement in a partition, "
            f"{self.longest_total_pause_ms} ms around faults of two or all nodes"
        )

    def _left_out(self) -> Iterator[str]:
        yield from (f"{'left out':<24}{what}" for what in self.left_out)

    def _problems(self) -> Iterator[str]:
        """A few of each kind: what was lost a thousand times must not hide what was lost once."""
        for kind in dict(self.problems):
            texts = [text for other, text in self.problems if other == kind]
            yield from (f"PROBLEM: {kind}: {text}" for text in texts[:SHOWN_OF_A_KIND])
            if len(texts) > SHOWN_OF_A_KIND:
                yield f"PROBLEM: {kind}: ... and {len(texts) - SHOWN_OF_A_KIND} more"
