"""Reads every file of a data directory with Apache Kafka's own readers.

Binary files go through kafka-dump-log; the small text files through the classes with which Kafka's broker reads them.
A file that no reader here knows is an error too: Barnabas writes Kafka's files and no others.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from py4j.java_gateway import JavaGateway, JavaObject
from support.tools import DUMP_LOG, StockTools, ToolResult

METADATA_PARTITION = "__cluster_metadata-0"
# A file that only marks something, or that only Kafka's lock handling opens.
WITHOUT_CONTENT = {".lock"}
OFFSET_CHECKPOINTS = {
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
}

# What kafka-dump-log says when it does not like a file.
_COMPLAINT = re.compile(
    r"mismatch|not found|non-?consecutive|non-secutive|trailing|invalid bytes|corrupt|isvalid: false|exception"
    r"|could not|ignoring|unable|error|skipping|truncated|not well formed",
    re.IGNORECASE,
)
# The tool takes every segment but a partition's first one for a gap after offset -1, Kafka's own ones too.
_FIRST_OFFSET = re.compile(r"  -1 is followed by \d+\n")
_GAP_HEADING = re.compile(r"Non-consecutive offsets in .*\n(?!  )")


class DataDirectoryReader:
    """Kafka's verdict on one stopped broker's data directory; `files` counts what was read, by kind."""

    def __init__(self, tools: StockTools, gateway: JavaGateway, data_dir: Path) -> None:
        self._tools = tools
        self._jvm = gateway.jvm
        self._data_dir = data_dir
        self.files: Counter[str] = Counter()
        self.batches = 0
        self.metadata_records: Counter[str] = Counter()

    def read_all(self) -> None:
        by_kind: dict[str, list[Path]] = {}
        for path in sorted(path for path in self._data_dir.rglob("*") if path.is_file()):
            if path.parent.name.endswith("-delete") and path.suffix in (".index", ".timeindex"):
                continue  # a deleted partition's indexes stay preallocated, and dump-log dislikes Kafka's own
            by_kind.setdefault(self._kind(path), []).append(path)
        for kind, paths in by_kind.items():
            self._read_kind(kind, paths)
            self.files[kind] += len(paths)

    def _kind(self, path: Path) -> str:
        if path.suffix in (".log", ".checkpoint"):
            return "metadata" if path.suffix == ".checkpoint" or path.parent.name == METADATA_PARTITION else "log"
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            return path.suffix.removeprefix(".")
        return path.name

    def _read_kind(self, kind: str, paths: list[Path]) -> None:
        match kind:
            case "log":
                out = self._dump(paths, "--deep-iteration", "--max-message-size", "10485760").out
                self._check_batches(out)
                self._dump(paths, "--print-data-log")
            case "metadata":
                self._read_metadata(paths)
            case "index" | "timeindex":
                self._dump(paths)
                self._dump(paths, "--verify-index-only")
                verdicts = self._dump(paths, "--index-sanity-check").out
                passed = len(re.findall(r"passed sanity check|is empty", verdicts))
                assert passed == len(paths), f"{passed} of {len(paths)} {kind} files passed the sanity check"
            case "txnindex" | "snapshot":
                self._dump(paths)
            case _:
                for path in paths:
                    self._read_text(kind, path)

    def _read_metadata(self, paths: list[Path]) -> None:
        out = self._dump(paths, "--cluster-metadata-decoder", "--deep-iteration").out
        self._check_batches(out)
        self.metadata_records.update(re.findall(r'payload: \{"type":"(\w+)"', out))

    def _dump(self, paths: list[Path], *options: str) -> ToolResult:
        result = self._tools.run(DUMP_LOG, *options, "--files", ",".join(map(str, paths)))
        text = _GAP_HEADING.sub("", _FIRST_OFFSET.sub("", result.out + result.err))
        complaint = _COMPLAINT.search(re.sub(r"payload: .*|key: .*", "", text))
        assert result.code == 0 and complaint is None, _around(text, complaint)
        assert text.count("Dumping ") == len(paths) or "sanity" in " ".join(options), text[:2000]
        return result

    def _check_batches(self, out: str) -> None:
        batches = out.count("baseOffset: ")
        assert out.count("isvalid: true") == batches, "not every batch has a valid CRC"
        self.batches += batches

    def _read_text(self, kind: str, path: Path) -> None:
        if kind in WITHOUT_CONTENT:
            return
        checkpoints = self._jvm.org.apache.kafka.storage.internals.checkpoint
        file = self._jvm.java.io.File(str(path))
        if kind in OFFSET_CHECKPOINTS:
            checkpoints.OffsetCheckpointFile(file, self._failure_channel()).read()
        elif kind == "leader-epoch-checkpoint":
            checkpoints.LeaderEpochCheckpointFile(file, self._failure_channel()).read()
        elif kind == "partition.metadata":
            metadata = checkpoints.PartitionMetadataFile(file, self._failure_channel()).read()
            assert len(str(metadata.topicId())) == 22
        elif kind == ".kafka_cleanshutdown":
            epoch = checkpoints.CleanShutdownFileHandler(str(path.parent)).read()
            assert epoch.isPresent(), f"{path} holds no broker epoch: {path.read_text()!r}"
        elif kind == "quorum-state":
            state = self._jvm.org.apache.kafka.raft.FileQuorumStateStore(file).readElectionState()
            assert state.isPresent(), f"{path} holds no election state"
        elif kind == "meta.properties":
            settings = self._jvm.org.apache.kafka.common.utils.Utils.loadProps(str(path))
            builder = self._jvm.org.apache.kafka.metadata.properties.MetaProperties.Builder(settings)
            properties = builder.build()
            assert properties.clusterId().isPresent() and properties.directoryId().isPresent(), path
        else:
            raise AssertionError(f"a file that Apache Kafka does not have: {path}")

    def _failure_channel(self) -> JavaObject:
        return self._jvm.org.apache.kafka.storage.internals.log.LogDirFailureChannel(1)


def _around(text: str, complaint: re.Match[str] | None) -> str:
    position = complaint.start() if complaint else len(text)
    return text[max(0, position - 800) : position + 800]
