"""A partition's log on disk, in Apache Kafka's own file formats.

What lives here: segments and their indexes, appending and its checks, reading, recovery, producer state, leader
epochs, retention, checkpoints and log directories. What may not: sockets, requests and responses, metadata. The
operating system is reached through `storage.disk`, so that tests can lose power and run out of space.
"""
