"""Bytes <-> messages. Pure: no sockets, files or clocks, and no import of any other package of ours.

Lives here: primitive types, declared messages of every API, metadata records, record batches,
compression, error codes, request and response headers. May not live here: anything that waits or stores.
"""
