"""The cluster and this node: served APIs, brokers, log directories, the controller quorum, coordinators."""
