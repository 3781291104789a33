"""The framework end to end on its own example job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from support.spark import JobRun


def expected_counts(values: list[bytes]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for value in values:
        try:
            counts.update(word for word in re.split(r"[^\w]+|_", value.decode().lower()) if word)
        except UnicodeDecodeError:
            continue
    return counts


def test_a_job_runs_twice_from_its_checkpoint_and_counts_every_line_once(job_run: Callable[..., JobRun]) -> None:
    run = job_run("word-count")
    values = [event.value or b"" for event in run.generate(seed=1, count=150)]
    run.run()
    values += [event.value or b"" for event in run.generate(seed=2, count=150)]
    run.run()
    expected = expected_counts(values)
    assert {word: row["count"] for word, row in run.last_by_key("word-counts").items()} == expected
    assert {row["word"]: row["count"] for row in run.table("word_counts")} == expected
    broken = [value for value in values if b"\xff" in value]
    letters = run.dead_letters()
    assert broken and sorted(letter.value or b"" for letter in letters) == sorted(broken)
    assert {dict(letter.headers)["barnabas.error"] for letter in letters} == {b"the value is not UTF-8"}
    assert {dict(letter.headers)["barnabas.topic"] for letter in letters} == {run.names["lines"].encode()}
    assert sum(one.input_rows for one in run.progress if one.query == "counts") == len(values)
    assert run.progress[-1].lag == 0
