"""Configuration of topics, brokers, loggers, client metrics and groups: describing and altering it."""
