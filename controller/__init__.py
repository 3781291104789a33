"""The metadata of the cluster: its log, its image, and who decides on changes. Knows nothing of sockets or clients."""
