"""Tables of settings, one module per family, with Apache Kafka 4.3's names, types, defaults and ranges.

Only declarations live here.  What reads them is in ``config.broker``, ``config.topic`` and
``config.describe``.
"""
