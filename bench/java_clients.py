"""Apache Kafka's Java clients in one long-lived JVM, driven through py4j.

The loops are Apache Kafka's own ProducerPerformance and ConsumerPerformance. A JVM of its own per run would measure
mostly its start and its compiler; in one JVM both brokers meet a client that is equally warm, and the first round of
each case is thrown away. The JVM gets what kafka-run-class.sh gives the tools.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from support.jars import class_path, py4j_jar, pyspark_jars
from support.java import find_java
from support.jvm import HERE, open_log, string_array
from support.tools import PRODUCER_PERFORMANCE, StockTools

from bench.tool_output import Consumed, Produced, parse_consumed, parse_produced

CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
JAVA_SOURCES = Path(__file__).with_name("java")

# kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh: 512 MB, and the collector of all of Kafka's scripts.
CLIENT_JVM = [
    "-Xmx512M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-XX:-UsePerfData",
    f"-Dlog4j2.configurationFile={HERE / 'log4j2-off.properties'}",
]


class Read(NamedTuple):
    """What readers got through, together."""

    seconds: float
    records: int
    size: int


class ToolFailed(RuntimeError):
    """A stock tool ended with an error; the message carries what it printed."""


class JavaClients:
    """One client JVM, started when first needed; `close` ends it, the next call starts another."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log: Any = None
        self._process: Any = None
        self._gateway: JavaGateway | None = None
        self._tools: StockTools | None = None
        self._compiled: dict[str, Any] = {}

    def _start(self) -> tuple[JavaGateway, StockTools]:
        if self._gateway is None or self._tools is None:
            self._log = open_log(self._directory)
            port, token, self._process = launch_gateway(
                port=0,
                jarpath=py4j_jar(),
                classpath=":".join([class_path(), *map(str, _compiler_jars())]),
                javaopts=CLIENT_JVM,
                die_on_exit=True,
                redirect_stderr=self._log,
                java_path=find_java(),
                enable_auth=True,
                return_proc=True,
            )
            parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
            self._gateway = JavaGateway(gateway_parameters=parameters)
            self._tools = StockTools(self._gateway)
        return self._gateway, self._tools

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: int,
        record_size: int,
        settings: Mapping[str, str] | None = None,
        payload_file: Path | None = None,
    ) -> Produced:
        """As fast as the producer can; its settings are Kafka's defaults except for the given ones."""
        _, tools = self._start()
        arguments = produce_arguments(bootstrap, topic, records, record_size, settings or {}, payload_file)
        result = tools.run(PRODUCER_PERFORMANCE, *arguments)
        if result.code != 0:
            raise ToolFailed(f"ProducerPerformance: {result.out}{result.err}")
        return parse_produced(result.out)

    def consume(self, bootstrap: str, topic: str, records: int, group: str) -> Consumed:
        """From the beginning, as a member of a new group."""
        _, tools = self._start()
        result = tools.run(CONSUMER_PERFORMANCE, *consume_arguments(bootstrap, topic, records, group))
        if result.code != 0:
            raise ToolFailed(f"ConsumerPerformance: {result.out}{result.err}")
        return parse_consumed(result.out)

    def at_once(self, tool: str, runs: Sequence[Sequence[str]]) -> float:
        """Several runs of `tool` at the same time, a thread each; the seconds until the last has ended."""
        gateway, _ = self._start()
        main = getattr(gateway.jvm.org.apache.kafka.tools, tool.rsplit(".", 1)[1]).main
        problems: list[str] = []

        def one(arguments: Sequence[str]) -> None:
            try:
                main(string_array(gateway, list(arguments)))
            except Exception as problem:
                problems.append(str(problem))

        threads = [threading.Thread(target=one, args=(arguments,)) for arguments in runs]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise ToolFailed(f"{tool}: {problems[0]}")
        return time.perf_counter() - begin

    def latencies_ms(self, bootstrap: str, topic: str, records: int, per_second: int, record_size: int) -> list[float]:
        """End to end, per record, in an open loop (see OpenLoop.java)."""
        text = self._run_compiled("OpenLoop", bootstrap, topic, records, per_second, record_size)
        return [int(line) / 1e6 for line in text.splitlines()]

    def read(self, bootstrap: str, topic: str, partitions: int, records: int, readers: int = 1) -> Read:
        """Everything from the beginning, by `readers` consumers at once (see Readers.java)."""
        nanoseconds, count, size = self._run_compiled("Readers", bootstrap, topic, partitions, records, readers).split()
        return Read(int(nanoseconds) / 1e9, int(count), int(size))

    def _run_compiled(self, name: str, *arguments: object) -> str:
        """The static `run` of a class of ours, compiled in the JVM."""
        gateway, _ = self._start()
        method = self._compiled.get(name)
        if method is None:
            compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook((JAVA_SOURCES / f"{name}.java").read_text())
            methods = compiler.getClassLoader().loadClass(name).getMethods()
            method = next(m for m in methods if m.getName() == "run" and m.getParameterCount() == len(arguments))
            self._compiled[name] = method
        array = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
        for position, value in enumerate(arguments):
            array[position] = value
        result: str = method.invoke(None, array)
        return result

    def close(self) -> None:
        gateway, self._gateway, self._tools = self._gateway, None, None
        self._compiled.clear()
        if gateway is not None:
            gateway.shutdown()
            self._process.kill()  # a tool may still be waiting for a broker in there
            self._process.wait()
            self._log.close()


def produce_arguments(
    bootstrap: str,
    topic: str,
    records: int,
    record_size: int,
    settings: Mapping[str, str],
    payload_file: Path | None = None,
) -> list[str]:
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]
    arguments += ["--throughput", "-1"]
    arguments += ["--payload-file", str(payload_file)] if payload_file else ["--record-size", str(record_size)]
    if settings:
        arguments += ["--command-property", *(f"{name}={value}" for name, value in settings.items())]
    return arguments


def consume_arguments(bootstrap: str, topic: str, records: int, group: str) -> list[str]:
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]
    return [*arguments, "--group", group, "--hide-header", "--timeout", "20000"]


def _compiler_jars() -> list[Path]:
    """pyspark carries a Java compiler that needs no JDK."""
    return [*pyspark_jars().glob("janino-*.jar"), *pyspark_jars().glob("commons-compiler-*.jar")]
