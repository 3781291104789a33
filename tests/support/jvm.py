"""One long-lived JVM with Apache Kafka's classes on its class path, driven through py4j.

A JVM start costs seconds on two cores; hundreds of oracle questions share this one. It dies with the test
process (py4j's die_on_exit: the JVM ends when its stdin closes), so a killed pytest leaves nothing behind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from py4j.java_gateway import GatewayParameters, JavaGateway, JavaObject, launch_gateway
from support.jars import class_path, py4j_jar
from support.java import find_java

HERE = Path(__file__).resolve().parent

# C1 only and the serial collector: the tests are many short calls, so quick warm-up beats peak speed, and
# the JVM shares two cores with the broker under test.
JVM_OPTIONS = [
    "-Xmx384m",
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dfile.encoding=UTF-8",
    f"-Dlog4j2.configurationFile={HERE / 'log4j2-off.properties'}",
]


class Jvm:
    """The gateway and its life. `gateway.jvm.<package>.<Class>` reaches any class of Kafka's."""

    def __init__(self, log: IO[str]) -> None:
        port, token = launch_gateway(
            port=0,
            jarpath=py4j_jar(),
            classpath=class_path(),
            javaopts=JVM_OPTIONS,
            die_on_exit=True,
            redirect_stderr=log,
            java_path=find_java(),
            enable_auth=True,
        )
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))

    def close(self) -> None:
        self.gateway.shutdown()


def java_class(gateway: JavaGateway, name: str) -> JavaObject:
    """The java.lang.Class object of `name` (`a.b.Outer$Inner` for nested ones)."""
    return gateway.jvm.java.lang.Class.forName(name)


def java_array(gateway: JavaGateway, element: JavaObject, items: list[object]) -> JavaObject:
    """A Java array of `items`; py4j wants arrays built element by element."""
    array = gateway.new_array(element, len(items))
    for position, item in enumerate(items):
        array[position] = item
    return array


def string_array(gateway: JavaGateway, items: list[str]) -> JavaObject:
    return java_array(gateway, gateway.jvm.java.lang.String, list(items))


def open_log(directory: Path) -> IO[str]:
    os.makedirs(directory, exist_ok=True)
    return open(directory / "jvm.log", "a")
