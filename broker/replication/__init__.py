"""Replication of partitions: the leader's bookkeeping, the follower's steps, and what carries them out.

`leader.py`, `follower.py` and `fetch_session.py` are pure: no event loop, sockets, files or clock. The rest is shell:
`fetcher.py` pulls from leaders, `isr_updates.py` tells the controller who is in sync, `cluster.py` is what partitions
know of the cluster.
"""
