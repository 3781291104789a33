"""Coordinators: state that lives in an internal topic and is served by the leader of its partition.

`records.py` and `effects.py` are the vocabulary of the pure cores (`group/`): inputs and the time go in, records to
append and replies to send come out. `shard.py` and `service.py` are the shell: they read and write the log, keep the
clock and the futures. Nothing below `group/` may import asyncio, sockets, files, a clock or randomness.
"""
