"""Settings: what they are, how a properties file is read, and what a node and its topics end up with.

``broker.BrokerConfig`` is a node's configuration, ``topic.LogConfig`` a topic's, ``describe`` answers
DescribeConfigs, ``settings/`` declares every setting, and ``effective`` lists those that Barnabas acts on.
``server.properties`` is the default configuration of a combined single node.

A leaf: loaded once at start, passed in, and importing nothing else of the project.
"""
