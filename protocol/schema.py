"""How a message is declared. Codecs are compiled from the declaration (see `protocol.codec`).

    class CreatableReplicaAssignment(Struct):
        partition_index: int = int32("0+")
        broker_ids: list[int] = array(int32, "0+")

One slotted class covers all versions of a message: every field says in which versions it is on the wire
and which value it has elsewhere. Classes are cheap to import: constructors and codecs are compiled on
first use, because a broker start must not pay for messages it never sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, dataclass_transform

from protocol.errors import EncodeError
from protocol.uuids import Uuid

T = TypeVar("T")
M = TypeVar("M", bound="Message")
Buffer = bytes | bytearray | memoryview

NO_MAX = 0x7FFF


class Versions(NamedTuple):
    """An inclusive range of versions; empty when lowest > highest."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


NEVER = Versions(1, 0)


def parse_versions(text: str) -> Versions:
    """Kafka's notation: "3", "3+", "3-9", "none"."""
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), NO_MAX)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


class _Unset:
    """Marks a field without a declared default: each instance then gets a fresh empty value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()


class Field:
    """One declared field. `kind` is an element kind for arrays; `struct` is set for (arrays of) structs."""

    __slots__ = (
        "default",
        "flexible",
        "ignorable",
        "is_array",
        "kind",
        "name",
        "nullable",
        "struct",
        "tag",
        "tagged",
        "versions",
        "wire_name",
    )

    def __init__(
        self,
        kind: Kind[Any] | None,
        struct: type[Struct] | None,
        is_array: bool,
        on_wire: str,
        *,
        nullable: str,
        default: Any,
        tag: int | None,
        tagged: str,
        ignorable: bool,
        flexible: bool,
        wire_name: str,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.struct = struct
        self.is_array = is_array
        self.versions = parse_versions(on_wire)
        self.nullable = parse_versions(nullable)
        self.default = default
        self.tag = tag
        self.tagged = parse_versions(tagged)
        self.ignorable = ignorable
        self.flexible = flexible
        """False for the one string that keeps its two-byte length in flexible versions (the client id)."""
        self.wire_name = wire_name
        """Kafka's spelling, where it does not follow from ours."""

    def default_value(self) -> Any:
        """The value in versions that do not carry the field; fresh for mutable kinds."""
        if self.default is not UNSET:
            return self.default
        if self.is_array:
            return []
        if self.struct is not None:
            return shared_default(self.struct) if self.tag is not None else self.struct()
        assert self.kind is not None
        return self.kind.zero

    def default_is_fresh(self) -> bool:
        """Tagged structs are the exception: nearly every message leaves them out, so all share one that is frozen."""
        return self.default is UNSET and (self.is_array or (self.struct is not None and self.tag is None))


class Kind(Generic[T]):
    """A primitive type of the wire; calling it declares a field of it."""

    __slots__ = ("code", "name", "size", "zero")

    def __init__(self, name: str, zero: T, code: str = "", size: int = 0) -> None:
        self.name = name
        self.zero = zero
        self.code = code
        """The struct format character; empty for kinds of variable length."""
        self.size = size

    def __call__(
        self,
        on_wire: str,
        *,
        nullable: str = "none",
        default: T | _Unset | None = UNSET,
        tag: int | None = None,
        tagged: str = "none",
        ignorable: bool = False,
        flexible: bool = True,
        wire_name: str = "",
    ) -> T:
        made = Field(
            self,
            None,
            False,
            on_wire,
            nullable=nullable,
            default=default,
            tag=tag,
            tagged=tagged,
            ignorable=ignorable,
            flexible=flexible,
            wire_name=wire_name,
        )
        return cast(T, made)


boolean: Kind[bool] = Kind("boolean", False, "?", 1)
int8: Kind[int] = Kind("int8", 0, "b", 1)
int16: Kind[int] = Kind("int16", 0, "h", 2)
uint16: Kind[int] = Kind("uint16", 0, "H", 2)
int32: Kind[int] = Kind("int32", 0, "i", 4)
uint32: Kind[int] = Kind("uint32", 0, "I", 4)
int64: Kind[int] = Kind("int64", 0, "q", 8)
float64: Kind[float] = Kind("float64", 0.0, "d", 8)
uuid: Kind[Uuid] = Kind("uuid", Uuid.ZERO, "16s", 16)
string: Kind[str] = Kind("string", "")
raw: Kind[bytes] = Kind("bytes", b"")
# Whatever is sent as records: bytes when we have them, a view of the receive buffer when decoded,
# or a slice of a file that never becomes bytes of ours.
record_data: Kind[Any] = Kind("records", None)


def array(
    element: Kind[Any] | type[Struct],
    on_wire: str,
    *,
    nullable: str = "none",
    default: _Unset | None = UNSET,
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    wire_name: str = "",
) -> Any:
    kind, struct = (element, None) if isinstance(element, Kind) else (None, element)
    return Field(
        kind,
        struct,
        True,
        on_wire,
        nullable=nullable,
        default=default,
        tag=tag,
        tagged=tagged,
        ignorable=ignorable,
        flexible=True,
        wire_name=wire_name,
    )


def nested(
    struct: type[Struct],
    on_wire: str,
    *,
    nullable: str = "none",
    default: _Unset | None = UNSET,
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    wire_name: str = "",
) -> Any:
    return Field(
        None,
        struct,
        False,
        on_wire,
        nullable=nullable,
        default=default,
        tag=tag,
        tagged=tagged,
        ignorable=ignorable,
        flexible=True,
        wire_name=wire_name,
    )


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Turns declared fields into slots, and leaves the constructor to be compiled on first use."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any], **options: Any) -> StructMeta:
        fields = {key: value for key, value in space.items() if isinstance(value, Field)}
        for key, declared in fields.items():
            declared.name = key
            del space[key]
        space["__slots__"] = (*fields, *space.get("__slots__", ()))
        space["FIELDS"] = tuple(fields.values())
        made = super().__new__(mcs, name, bases, space)
        if fields:
            struct = cast("type[Struct]", made)
            struct.__init__ = _compiling_constructor(struct)  # type: ignore[method-assign]
            struct.__eq__ = _compiling_comparison(struct)  # type: ignore[method-assign]
        cast(Any, made)._declare(**options)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, space)


def _compiling_constructor(struct: type[Struct]) -> Callable[..., None]:
    def compile_then_call(self: Struct, **values: Any) -> None:
        constructor = _constructor_of(struct)
        struct.__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    return compile_then_call


def _constructor_of(struct: type[Struct]) -> Callable[..., None]:
    scope: dict[str, Any] = {"UNSET": UNSET}
    parameters, body = [], []
    for i, declared in enumerate(struct.FIELDS):
        name = declared.name
        if declared.default_is_fresh():
            fresh = "[]" if declared.is_array else f"S{i}()"
            scope[f"S{i}"] = declared.struct
            parameters.append(f"{name}=UNSET")
            body.append(f"  self.{name} = {fresh} if {name} is UNSET else {name}")
        else:
            scope[f"D{i}"] = declared.default_value()
            parameters.append(f"{name}=D{i}")
            body.append(f"  self.{name} = {name}")
    body.append("  self._unknown_tags = None")
    exec(f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(body), scope)
    return cast("Callable[..., None]", scope["__init__"])


def _compiling_comparison(struct: type[Struct]) -> Callable[[Any, object], bool]:
    def compile_then_call(self: Struct, other: object) -> bool:
        same = " and ".join(f"self.{declared.name} == other.{declared.name}" for declared in struct.FIELDS)
        scope: dict[str, Any] = {"struct": struct}
        exec(f"def __eq__(self, other):\n  return ({same}) if isinstance(other, struct) else NotImplemented", scope)
        struct.__eq__ = scope["__eq__"]  # type: ignore[method-assign]
        return cast("bool", scope["__eq__"](self, other))

    return compile_then_call


_shared_defaults: dict[type[Struct], Struct] = {}


def shared_default(struct: type[Struct]) -> Struct:
    """One instance with every field at its default, equal to any such, that cannot be changed."""
    made = _shared_defaults.get(struct)
    if made is None:
        space = {"__slots__": (), "__setattr__": _refuse_change}
        frozen = cast("type[Struct]", type.__new__(StructMeta, struct.__name__, (struct,), space))
        made = _shared_defaults[struct] = object.__new__(frozen)
        for declared in struct.FIELDS:
            object.__setattr__(made, declared.name, declared.default_value())
        object.__setattr__(made, "_unknown_tags", None)
    return made


def _refuse_change(self: Struct, name: str, value: object) -> None:
    kind = type(self).__name__
    raise AttributeError(f"{kind}.{name}: this is the default that all messages share; assign a new {kind} instead")


class Struct(metaclass=StructMeta):
    """Base of everything declared. Compares by value."""

    # Tagged fields of a newer peer, kept so that passing a message on loses nothing. None if there are none.
    __slots__ = ("_unknown_tags",)
    FIELDS: ClassVar[tuple[Field, ...]]

    @classmethod
    def _declare(cls) -> None:
        pass

    def __init__(self) -> None:
        """Of structs without fields; those with fields get a constructor of their own."""
        self._unknown_tags: dict[int, bytes] | None = None

    def items(self) -> Iterator[tuple[str, Any]]:
        for declared in self.FIELDS:
            yield declared.name, getattr(self, declared.name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return True  # no fields; those with fields get a comparison of their own

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def _has_records(struct: type[Struct]) -> bool:
    return any(
        _has_records(declared.struct) if declared.struct is not None else declared.kind is record_data
        for declared in struct.FIELDS
    )


class Message(Struct):
    """A whole request, response, header or record: what has versions of its own."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    """The API's key for requests and responses, the record's type for records, -1 for the rest."""
    VERSIONS: ClassVar[Versions] = NEVER
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FLEXIBLE: ClassVar[Versions] = NEVER
    UNSTABLE: ClassVar[bool] = False
    """The latest version is still being worked on in Kafka and is not advertised."""
    HAS_RECORDS: ClassVar[bool] = False
    """Some field holds records, which may be a slice of a file instead of bytes."""
    STRICT: ClassVar[bool] = False
    """Encoding refuses a field that the version cannot carry. Responses just leave such a field out."""

    _encoders: ClassVar[dict[int, Callable[[Any], list[Any]]]]
    _decoders: ClassVar[dict[int, Callable[[Any, int], tuple[Any, int]]]]

    @classmethod
    def _declare(
        cls,
        key: int = -1,
        versions: str = "none",
        flexible: str = "none",
        unstable: bool = False,
        strict: bool = False,
    ) -> None:
        served = parse_versions(versions)
        cls.API_KEY = key
        cls.VERSIONS = served
        cls.MIN_VERSION, cls.MAX_VERSION = served
        cls.FLEXIBLE = parse_versions(flexible)
        cls.UNSTABLE = unstable
        cls.STRICT = strict
        cls.HAS_RECORDS = _has_records(cls)
        cls._encoders = {}
        cls._decoders = {}

    def encode(self, version: int) -> bytes:
        """The bytes of this message. For messages whose records are bytes; others go by `encode_parts`."""
        try:
            return b"".join(self._encoded(version))
        except TypeError as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error

    def encode_parts(self, version: int) -> list[Any]:
        """Runs of bytes, and between them the file slices that stand for records."""
        pieces = self._encoded(version)
        if not self.HAS_RECORDS:
            return [b"".join(pieces)]
        parts: list[Any] = []
        run: list[Any] = []
        for piece in pieces:
            if isinstance(piece, (bytes, bytearray, memoryview)):
                run.append(piece)
            else:
                if run:
                    parts.append(b"".join(run))
                    run = []
                parts.append(piece)
        if run:
            parts.append(b"".join(run))
        return parts

    def _encoded(self, version: int) -> list[Any]:
        encoder = self._encoders.get(version)
        if encoder is None:
            from protocol.codec import compile_encoder

            encoder = self._encoders[version] = compile_encoder(type(self), version)
        return encoder(self)

    @classmethod
    def decode(cls: type[M], data: Buffer, version: int, offset: int = 0) -> M:
        """Trailing bytes are left alone, as Apache Kafka leaves them."""
        return cls.decode_from(data, version, offset)[0]

    @classmethod
    def decode_from(cls: type[M], data: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
        """The message, and the position after it. DecodeError for whatever a peer may get wrong."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            from protocol.codec import compile_decoder

            decoder = cls._decoders[version] = compile_decoder(cls, version)
        return decoder(data, offset)
