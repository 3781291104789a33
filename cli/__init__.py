"""The command line. Speaks the wire protocol only; `server_start` alone may import the broker."""
