"""Group coordination as a pure core: requests and the time go in, records and replies come out.

`core.py` is the door: it owns the groups and offsets of one partition of `__consumer_offsets` and hands each request
to `classic/` (JoinGroup and its kin), `consumer/` (KIP-848), `offsets.py` or `admin.py`. `base.py` holds what they
share. Nothing in here may import asyncio, sockets, files, a clock or randomness: all of it is passed in.
"""
