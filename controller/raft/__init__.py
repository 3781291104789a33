"""The Raft core of the metadata quorum, pure: no sockets, files, clock, randomness or identifiers of its own.

Inputs and the time go in, effects come out; the driver performs them. What lives here: roles, votes, replication
offsets, the high watermark, voter sets and their changes. What does not: bytes of records, RPC encodings, files.
"""
