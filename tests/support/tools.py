"""Runs Apache Kafka's own command-line tools: inside the shared JVM, or as true processes.

Inside the JVM a tool is its `main` method with three things replaced. `System.out` and `System.err` are two
byte buffers set once and emptied per call (once, because Scala's Console keeps the stream it saw first).
`System.in` is the given text. And Kafka's `Exit` procedures: an exit is recorded and then thrown as an
Error that no `catch (Exception)` of a tool can swallow, and the shutdown hooks a tool registers are
collected and run after it, since some tools (the console producer) flush only there. The procedures are
assembled from method handles, so no call goes back from Java into Python.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from py4j.java_gateway import JavaGateway, JavaObject
from py4j.protocol import Py4JJavaError
from support.jars import class_path, logging_jars
from support.java import find_java
from support.jvm import HERE, java_array, java_class, string_array

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
STORAGE = "kafka.tools.StorageTool"
METADATA_SHELL = "org.apache.kafka.shell.MetadataShell"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


# Our exit Error as a tool prints it that catches Throwable: not something the tool itself would have said.
_EXIT_TRACE = re.compile(r"^(?:\d+\n)?java\.lang\.AssertionError: \d+\n(?:\t(?:at|\.\.\.) .*\n)*", re.MULTILINE)


class ToolResult(NamedTuple):
    """What a tool left behind: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class StockTools:
    """The stock tools in one JVM; one call at a time."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        jvm = gateway.jvm
        self._out = jvm.java.io.ByteArrayOutputStream()
        self._err = jvm.java.io.ByteArrayOutputStream()
        self._exits = jvm.java.util.concurrent.ConcurrentLinkedQueue()
        self._hooks = jvm.java.util.concurrent.ConcurrentLinkedQueue()
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(self._out, True, "UTF-8"))
        jvm.java.lang.System.setErr(jvm.java.io.PrintStream(self._err, True, "UTF-8"))
        self._replace_exit_procedures()

    def _replace_exit_procedures(self) -> None:
        jvm = self._gateway.jvm
        handles = jvm.java.lang.invoke.MethodHandles
        lookup = handles.publicLookup()
        integer = jvm.java.lang.Integer.TYPE
        void = jvm.java.lang.Void.TYPE
        string = java_class(self._gateway, "java.lang.String")
        runnable = java_class(self._gateway, "java.lang.Runnable")
        error = java_class(self._gateway, "java.lang.AssertionError")

        def method_type(returns: JavaObject, *arguments: JavaObject) -> JavaObject:
            classes = java_array(self._gateway, jvm.java.lang.Class, list(arguments))
            return jvm.java.lang.invoke.MethodType.methodType(returns, classes)

        def classes(*items: JavaObject) -> JavaObject:
            return java_array(self._gateway, jvm.java.lang.Class, list(items))

        def recorder(target: JavaObject, argument: JavaObject) -> JavaObject:
            obj = java_class(self._gateway, "java.lang.Object")
            queue = java_class(self._gateway, "java.util.concurrent.ConcurrentLinkedQueue")
            add = lookup.findVirtual(queue, "add", method_type(jvm.java.lang.Boolean.TYPE, obj))
            return add.bindTo(target).asType(method_type(void, argument))

        # (int) -> void: new AssertionError(int), thrown; before it the code is recorded.
        throw = handles.throwException(void, error)
        construct = lookup.findConstructor(error, method_type(void, integer))
        filters = java_array(self._gateway, jvm.java.lang.invoke.MethodHandle, [construct])
        throw_code = handles.filterArguments(throw, 0, filters)
        record_and_throw = handles.foldArguments(throw_code, recorder(self._exits, integer))
        procedure = handles.dropArguments(record_and_throw, 1, classes(string))
        # (String name, Runnable hook) -> void: collected.
        adder = handles.dropArguments(recorder(self._hooks, runnable), 0, classes(string))

        proxies = jvm.java.lang.invoke.MethodHandleProxies
        exit_class = "org.apache.kafka.common.utils.Exit"
        on_exit = proxies.asInterfaceInstance(java_class(self._gateway, f"{exit_class}$Procedure"), procedure)
        add_hook = proxies.asInterfaceInstance(java_class(self._gateway, f"{exit_class}$ShutdownHookAdder"), adder)
        kafka_exit = jvm.org.apache.kafka.common.utils.Exit
        kafka_exit.setExitProcedure(on_exit)
        kafka_exit.setHaltProcedure(on_exit)
        kafka_exit.setShutdownHookAdder(add_hook)

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> ToolResult:
        """Run `main_class` with `arguments`; its exit code, stdout and stderr come back as values.

        Tools built on argparse4j (ClusterTool, StorageTool, MetadataQuorumCommand ...) leave through
        System.exit when their arguments are wrong, which no procedure intercepts: give those to
        `run_process`.
        """
        jvm = self._gateway.jvm
        self._out.reset()
        self._err.reset()
        self._exits.clear()
        self._hooks.clear()
        if main_class == CONSOLE_CONSUMER:
            self._forget_consumed_count()
        jvm.java.lang.System.setIn(jvm.java.io.ByteArrayInputStream(stdin.encode()))
        argument_array = string_array(self._gateway, list(arguments))
        main = java_class(self._gateway, main_class).getMethod(
            "main", java_array(self._gateway, jvm.java.lang.Class, [argument_array.getClass()])
        )
        parameters = java_array(self._gateway, jvm.java.lang.Object, [argument_array])
        crashed = ""
        try:
            main.invoke(None, parameters)
        except Py4JJavaError as failure:
            if self._exits.isEmpty():
                crashed = str(failure)
        while not self._hooks.isEmpty():
            self._hooks.poll().run()
        out = self._out.toString("UTF-8")
        err = _without_logging_notice(_EXIT_TRACE.sub("", self._err.toString("UTF-8")))
        if crashed:
            return ToolResult(1, out, err + crashed)
        return ToolResult(0 if self._exits.isEmpty() else self._exits.peek(), out, err)

    def _forget_consumed_count(self) -> None:
        """The console consumer counts in a static field, since its process normally runs once."""
        field = java_class(self._gateway, CONSOLE_CONSUMER).getDeclaredField("messageCount")
        field.setAccessible(True)
        field.setInt(None, 0)


def run_process(
    main_class: str, *arguments: str, stdin: str = "", timeout: float = 90, warnings: bool = False
) -> ToolResult:
    """Run a tool as its shell script would: a process of its own. For the few end-to-end proofs.

    `warnings` shows the tool's own log on stderr, as its script does.
    """
    run = subprocess.run(
        [*java_command(warnings=warnings), main_class, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return ToolResult(run.returncode, run.stdout, _without_logging_notice(run.stderr))


def java_command(
    options: Sequence[str] = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"), *, warnings: bool = False
) -> list[str]:
    config = f"-Dlog4j2.configurationFile={HERE / ('log4j2-warn.properties' if warnings else 'log4j2-off.properties')}"
    path = os.pathsep.join((*logging_jars(), class_path())) if warnings else class_path()
    return [find_java(), *options, "-XX:-UsePerfData", config, "-cp", path]


def _without_logging_notice(text: str) -> str:
    """slf4j says on stderr that it found no logger to bind to; the tools said nothing."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("SLF4J:"))


def write_temporary(text: str, suffix: str) -> str:
    """A file for a tool that takes its input by path; the caller's temporary directory collects it."""
    handle, path = tempfile.mkstemp(suffix=suffix)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return path
