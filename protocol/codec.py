"""Compiles a declaration into straight-line encoders and decoders, one pair per (message, version).

The generated source is what one would write by hand for speed: nested structs and arrays are inlined as
loops, runs of fixed-size fields become one `struct` call, and every length is checked against what is left
of the buffer before anything is allocated for it. Nobody hand-writes a codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

from protocol.errors import DecodeError, EncodeError
from protocol.schema import Field, Message, Struct
from protocol.uuids import Uuid
from protocol.varint import decode_uvarint, encode_uvarint

MAX_STRING = 0x7FFF  # a string's length is an int16 in the older versions, and Kafka keeps to it in all


def compile_encoder(message: type[Message], version: int) -> Callable[[Message], list[Any]]:
    """An encoder returns pieces to be joined; records that are not bytes stay pieces of their own."""
    writer = _Encoder(message, version)
    writer.line("def encode(m):")
    writer.indent += 1
    writer.line("out = []")
    writer.line("add = out.append")
    writer.structure(message, "m")
    writer.line("return out")
    run = cast("Callable[[Message], list[Any]]", writer.compiled("encode"))

    def encode(value: Message) -> list[Any]:
        try:
            return run(value)
        except (struct.error, TypeError, AttributeError, OverflowError) as error:
            raise EncodeError(f"{message.__name__} v{version}: {error}") from error

    return encode


def compile_decoder(message: type[Message], version: int) -> Callable[[Any, int], tuple[Any, int]]:
    reader = _Decoder(message, version)
    reader.line("def decode(buf, p):")
    reader.indent += 1
    reader.line("end = len(buf)")
    reader.structure(message, "m")
    reader.line("return m, p")
    run = cast("Callable[[Any, int], tuple[Any, int]]", reader.compiled("decode"))

    def decode(data: Any, offset: int) -> tuple[Any, int]:
        view = data if type(data) is memoryview else memoryview(data)
        try:
            return run(view, offset)
        except DecodeError as error:
            raise DecodeError(f"{message.__name__} v{version}: {error}") from None
        except (struct.error, IndexError):
            raise DecodeError(f"{message.__name__} v{version}: it ends too early") from None
        except UnicodeDecodeError as error:
            raise DecodeError(f"{message.__name__} v{version}: a string is not UTF-8: {error}") from None

    return decode


def short_by(name: str, wanted: int, left: int) -> DecodeError:
    return DecodeError(f"{name} claims {wanted} bytes or elements where {left} bytes are left")


class _Compiler:
    """What encoder and decoder share: source lines, unique names, constants, and runs of fixed fields."""

    def __init__(self, message: type[Message], version: int) -> None:
        if version not in message.VERSIONS:
            raise EncodeError(f"{message.__name__} has no version {version}, only {message.VERSIONS}")
        self.message = message
        self.version = version
        self.flexible = version in message.FLEXIBLE
        self.lines: list[str] = []
        self.indent = 0
        self.scope: dict[str, Any] = {
            "uvarint": encode_uvarint,
            "read_uvarint": decode_uvarint,
            "short_by": short_by,
            "DecodeError": DecodeError,
            "EncodeError": EncodeError,
            "Uuid": Uuid,
            "new_bytes": bytes.__new__,  # the length is known to be right
            "unpack_array": struct.unpack_from,
            "pack_array": struct.pack,
        }
        self.counter = 0

    def line(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)

    def name(self, hint: str) -> str:
        self.counter += 1
        return f"{hint}{self.counter}"

    def constant(self, hint: str, value: Any) -> str:
        made = self.name(hint)
        self.scope[made] = value
        return made

    def packer(self, fields: list[Field]) -> struct.Struct:
        return struct.Struct(">" + "".join(f.kind.code for f in fields if f.kind is not None))

    def is_tagged(self, declared: Field) -> bool:
        return declared.tag is not None and self.version in declared.tagged

    def is_fixed(self, declared: Field) -> bool:
        return not declared.is_array and declared.kind is not None and declared.kind.size > 0

    def is_nullable(self, declared: Field) -> bool:
        return self.version in declared.nullable

    def compact(self, declared: Field) -> bool:
        return self.flexible and declared.flexible

    def compiled(self, function: str) -> Any:
        exec(compile("\n".join(self.lines), f"<{self.message.__name__} v{self.version}>", "exec"), self.scope)
        return self.scope[function]


class _Encoder(_Compiler):
    def structure(self, declared: type[Struct], var: str) -> None:
        tagged: list[Field] = []
        run: list[Field] = []
        for field in declared.FIELDS:
            if self.version not in field.versions:
                if self.message.STRICT and not field.ignorable:
                    self.refuse_if_set(declared, field, var)
            elif self.is_tagged(field):
                tagged.append(field)
            elif self.is_fixed(field):
                run.append(field)
            else:
                self.fixed_run(run, var)
                run = []
                self.value(field, f"{var}.{field.name}")
        self.fixed_run(run, var)
        if self.flexible:
            self.tags(tagged, var)

    def refuse_if_set(self, declared: type[Struct], field: Field, var: str) -> None:
        default = self.constant("D", field.default_value())
        self.line(f"if {var}.{field.name} != {default}:")
        what = f"{declared.__name__}.{field.name} cannot be sent in version {self.version}"
        self.line(f" raise EncodeError({what!r})")

    def fixed_run(self, run: list[Field], var: str) -> None:
        if run:
            pack = self.constant("pack", self.packer(run).pack)
            self.line(f"add({pack}({', '.join(f'{var}.{f.name}' for f in run)}))")

    def length(self, declared: Field, expression: str, code: str) -> None:
        """A length prefix: compact ones are off by one, so that zero can mean null."""
        if self.compact(declared):
            self.line(f"add(uvarint({expression} + 1))")
        else:
            pack = self.constant("pack", struct.Struct(">" + code).pack)
            self.line(f"add({pack}({expression}))")

    def null(self, declared: Field, code: str) -> None:
        absent = b"\x00" if self.compact(declared) else struct.pack(">" + code, -1)
        self.line(f"add({absent!r})")

    def value(self, declared: Field, expression: str) -> None:
        if self.is_fixed(declared):
            pack = self.constant("pack", self.packer([declared]).pack)
            self.line(f"add({pack}({expression}))")
            return
        var = self.name("v")
        self.line(f"{var} = {expression}")
        may_be_null = self.is_nullable(declared)
        if declared.is_array:
            self.maybe_null(declared, var, may_be_null, "i", lambda: self.array(declared, var))
        elif declared.struct is not None:
            self.nested(declared, var, may_be_null)
        elif declared.kind is not None and declared.kind.name == "string":
            self.maybe_null(declared, var, may_be_null, "h", lambda: self.string(declared, var))
        else:
            self.maybe_null(declared, var, may_be_null, "i", lambda: self.blob(declared, var))

    def maybe_null(self, declared: Field, var: str, may_be_null: bool, code: str, present: Callable[[], None]) -> None:
        if not may_be_null:
            present()
            return
        self.line(f"if {var} is None:")
        self.indent += 1
        self.null(declared, code)
        self.indent -= 1
        self.line("else:")
        self.indent += 1
        present()
        self.indent -= 1

    def string(self, declared: Field, var: str) -> None:
        self.line(f"{var} = {var}.encode()")
        self.line(f"if len({var}) > {MAX_STRING}:")
        self.line(f" raise EncodeError('{declared.name} is a string of over {MAX_STRING} bytes')")
        self.length(declared, f"len({var})", "h")
        self.line(f"add({var})")

    def blob(self, declared: Field, var: str) -> None:
        self.length(declared, f"len({var})", "i")
        self.line(f"add({var})")

    def nested(self, declared: Field, var: str, may_be_null: bool) -> None:
        assert declared.struct is not None
        if not may_be_null:
            self.structure(declared.struct, var)
            return
        # A nullable struct is preceded by one byte, in all versions: -1 for null, 1 for present (KIP-893). As a
        # tagged field it has an unsigned varint instead: 0 for null, 1 for present.
        null = b"\x00" if self.is_tagged(declared) else b"\xff"
        self.line(f"if {var} is None:")
        self.line(f" add({null!r})")
        self.line("else:")
        self.indent += 1
        self.line("add(b'\\x01')")
        self.structure(declared.struct, var)
        self.indent -= 1

    def array(self, declared: Field, var: str) -> None:
        self.length(declared, f"len({var})", "i")
        if declared.struct is not None:
            item = self.name("e")
            self.line(f"for {item} in {var}:")
            self.indent += 1
            before = len(self.lines)
            self.structure(declared.struct, item)
            if len(self.lines) == before:
                self.line("pass")
            self.indent -= 1
            return
        kind = declared.kind
        assert kind is not None
        if kind.size:
            if kind.name == "uuid":
                self.line(f"add(b''.join({var}))")
            else:
                self.line(f"add(pack_array('>%d{kind.code}' % len({var}), *{var}))")
            return
        item = self.name("e")
        self.line(f"for {item} in {var}:")
        self.indent += 1
        self.string(declared, item) if kind.name == "string" else self.blob(declared, item)
        self.indent -= 1

    def tags(self, tagged: list[Field], var: str) -> None:
        """Tagged fields go on the wire only when they differ from their default, in order of tag."""
        self.line(f"tags = {var}._unknown_tags")
        for field in sorted(tagged, key=lambda f: f.tag or 0):
            self.one_tag(field, f"{var}.{field.name}")
        self.line("if tags is None:")
        self.line(" add(b'\\x00')")
        self.line("else:")
        self.line(" add(uvarint(len(tags)))")
        self.line(" for tag in sorted(tags):")
        self.line("  add(uvarint(tag)); add(uvarint(len(tags[tag]))); add(tags[tag])")

    def one_tag(self, field: Field, expression: str) -> None:
        default = self.constant("D", field.default_value())
        # The nested structure's own tags must not clobber ours, so it writes to lists of its own.
        outer, kept = self.name("out"), self.name("tags")
        unlike = f"{expression} is not {default} and " if field.struct is not None else ""
        self.line(f"if {unlike}{expression} != {default}:")
        self.indent += 1
        self.line(f"{outer} = out; {kept} = {{}} if tags is None else dict(tags); out = []; add = out.append")
        self.value(field, expression)
        self.line(f"{kept}[{field.tag}] = b''.join(out); out = {outer}; add = out.append; tags = {kept}")
        self.indent -= 1


class _Decoder(_Compiler):
    def structure(self, declared: type[Struct], var: str) -> None:
        new = self.constant("new", declared.__new__)
        cls = self.constant("cls", declared)
        self.line(f"{var} = {new}({cls})")
        self.line(f"{var}._unknown_tags = None")
        tagged: list[Field] = []
        run: list[Field] = []
        for field in declared.FIELDS:
            if self.version not in field.versions or self.is_tagged(field):
                self.line(f"{var}.{field.name} = {self.default(field)}")
                if self.version in field.versions:
                    tagged.append(field)
            elif self.is_fixed(field):
                run.append(field)
            else:
                self.fixed_run(run, var)
                run = []
                self.value(field, f"{var}.{field.name}")
        self.fixed_run(run, var)
        if self.flexible:
            self.tags(tagged, var)

    def default(self, field: Field) -> str:
        if field.default_is_fresh():
            if field.is_array:
                return "[]"
            return f"{self.constant('cls', field.struct)}()"
        return self.constant("D", field.default_value())

    def fixed_run(self, run: list[Field], var: str) -> None:
        if not run:
            return
        packer = self.packer(run)
        unpack = self.constant("unpack", packer.unpack_from)
        targets = ", ".join(f"{var}.{f.name}" for f in run)
        self.line(f"{targets}{',' if len(run) == 1 else ''} = {unpack}(buf, p)")
        self.line(f"p += {packer.size}")
        for field in run:
            if field.kind is not None and field.kind.name == "uuid":
                self.line(f"{var}.{field.name} = new_bytes(Uuid, {var}.{field.name})")

    def uvarint(self, var: str) -> None:
        self.line(f"{var} = buf[p]")
        self.line(f"if {var} < 128:")
        self.line(" p += 1")
        self.line("else:")
        self.line(f" {var}, p = read_uvarint(buf, p)")

    def length(self, declared: Field, code: str) -> str:
        """Reads a length prefix; null becomes -1."""
        var = self.name("n")
        if self.compact(declared):
            self.uvarint(var)
            self.line(f"{var} -= 1")
        else:
            packer = struct.Struct(">" + code)
            unpack = self.constant("unpack", packer.unpack_from)
            self.line(f"{var}, = {unpack}(buf, p)")
            self.line(f"p += {packer.size}")
        return var

    def value(self, declared: Field, target: str) -> None:
        if self.is_fixed(declared):
            packer = self.packer([declared])
            unpack = self.constant("unpack", packer.unpack_from)
            self.line(f"{target}, = {unpack}(buf, p)")
            self.line(f"p += {packer.size}")
            if declared.kind is not None and declared.kind.name == "uuid":
                self.line(f"{target} = new_bytes(Uuid, {target})")
        elif declared.is_array:
            size = self.length(declared, "i")
            self.nullable_or(declared, size, target, lambda: self.array(declared, size, target))
        elif declared.struct is not None:
            self.nested(declared, target)
        elif declared.kind is not None and declared.kind.name == "string":
            size = self.length(declared, "h")
            self.nullable_or(declared, size, target, lambda: self.string(declared, size, target))
        else:
            size = self.length(declared, "i")
            self.nullable_or(declared, size, target, lambda: self.blob(declared, size, target))

    def nullable_or(self, declared: Field, size: str, target: str, present: Callable[[], None]) -> None:
        self.line(f"if {size} < 0:")
        if self.is_nullable(declared):
            self.line(f" {target} = None")
        else:
            self.line(f" raise DecodeError('{declared.name} is null or has a negative length')")
        self.line("else:")
        self.indent += 1
        present()
        self.indent -= 1

    def check_left(self, declared: Field, size: str, unit: int = 1) -> None:
        claimed = size if unit == 1 else f"{size} * {unit}"
        self.line(f"if {claimed} > end - p:")
        self.line(f" raise short_by('{declared.name}', {claimed}, end - p)")

    def string(self, declared: Field, size: str, target: str) -> None:
        self.line(f"if {size} > {MAX_STRING}:")
        self.line(f" raise DecodeError('{declared.name} is a string of over {MAX_STRING} bytes')")
        self.check_left(declared, size)
        self.line(f"{target} = str(buf[p:p + {size}], 'utf-8')")
        self.line(f"p += {size}")

    def blob(self, declared: Field, size: str, target: str) -> None:
        """Records stay a view of the receive buffer: they go to the file from there."""
        self.check_left(declared, size)
        assert declared.kind is not None
        view = f"buf[p:p + {size}]"
        self.line(f"{target} = {view if declared.kind.name == 'records' else f'bytes({view})'}")
        self.line(f"p += {size}")

    def nested(self, declared: Field, target: str) -> None:
        assert declared.struct is not None
        var = self.name("s")
        if not self.is_nullable(declared):
            self.structure(declared.struct, var)
            self.line(f"{target} = {var}")
            return
        self.line("if buf[p] == 0:" if self.is_tagged(declared) else "if buf[p] > 127:")
        self.line(" p += 1")
        self.line(f" {target} = None")
        self.line("else:")
        self.indent += 1
        self.line("p += 1")
        self.structure(declared.struct, var)
        self.line(f"{target} = {var}")
        self.indent -= 1

    def array(self, declared: Field, size: str, target: str) -> None:
        kind = declared.kind
        if kind is not None and kind.size:
            self.check_left(declared, size, kind.size)
            if kind.name == "uuid":
                self.line(f"{target} = [new_bytes(Uuid, buf[q:q + 16]) for q in range(p, p + {size} * 16, 16)]")
            else:
                self.line(f"{target} = list(unpack_array('>%d{kind.code}' % {size}, buf, p))")
            self.line(f"p += {size} * {kind.size}")
            return
        # Every element takes at least a byte, so a count beyond what is left is a lie.
        self.check_left(declared, size)
        made, item = self.name("a"), self.name("e")
        self.line(f"{made} = []")
        self.line(f"for _ in range({size}):")
        self.indent += 1
        if declared.struct is not None:
            self.structure(declared.struct, item)
        else:
            inner = self.length(declared, "h" if kind is not None and kind.name == "string" else "i")
            self.line(f"if {inner} < 0:")
            self.line(f" raise DecodeError('{declared.name} has a null element')")
            if kind is not None and kind.name == "string":
                self.string(declared, inner, item)
            else:
                self.blob(declared, inner, item)
        self.line(f"{made}.append({item})")
        self.indent -= 1
        self.line(f"{target} = {made}")

    def tags(self, tagged: list[Field], var: str) -> None:
        self.line("if buf[p] == 0:")
        self.line(" p += 1")
        self.line("else:")
        self.indent += 1
        count, tag, size, stop, last = (self.name(hint) for hint in ("n", "tag", "size", "stop", "last"))
        self.uvarint(count)
        self.line(f"{last} = -1")
        self.line(f"for _ in range({count}):")
        self.indent += 1
        self.uvarint(tag)
        self.uvarint(size)
        self.line(f"if {size} > end - p:")
        self.line(f" raise short_by('a tagged field', {size}, end - p)")
        self.line(f"if {tag} <= {last}:")
        self.line(" raise DecodeError('tagged fields are out of order')")
        self.line(f"{last} = {tag}")
        self.line(f"{stop} = p + {size}")
        branch = "if"
        for field in tagged:
            self.line(f"{branch} {tag} == {field.tag}:")
            self.indent += 1
            self.value(field, f"{var}.{field.name}")
            self.line(f"if p != {stop}:")
            self.line(f" raise DecodeError('tagged field {field.name} does not fill its size')")
            self.indent -= 1
            branch = "elif"
        keep = f"{var}._unknown_tags = {{**({var}._unknown_tags or {{}}), {tag}: bytes(buf[p:{stop}])}}"
        if tagged:
            self.line("else:")
            self.line(f" {keep}")
            self.line(f" p = {stop}")
        else:
            self.line(keep)
            self.line(f"p = {stop}")
        self.indent -= 2
