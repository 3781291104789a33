"""Benchmarks: Barnabas and Apache Kafka on the same machine in the same run, so that the ratio means something.

`make bench` runs all, `make bench-quick` a part within five minutes. Both brokers run at once, the rounds alternate
between them, a first round is thrown away, and what is shown are medians with their spread: figures of a shared
machine are noisy. Nothing here is a timed test.

Cases live in `cases/`, a small function each. Where a record has to pass a client, it is the stock Java client; the
raw clients of this package are for what needs hundreds of members, and for the comparison with the floor.
"""
