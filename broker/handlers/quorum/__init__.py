"""What controllers serve on their own listeners: the Raft RPCs of the quorum, and the requests of other nodes."""
