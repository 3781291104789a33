"""The one exception of this package."""

from __future__ import annotations


class ConfigError(Exception):
    """A setting that cannot be used.

    ``message`` is the sentence a client sees, in the shape Apache Kafka gives it, because admin tools and
    their users recognise it.  ``str()`` adds what the person who starts the server needs: where the value
    was written and what would be right.
    """

    def __init__(
        self,
        message: str,
        *,
        setting: str | None = None,
        value: str | None = None,
        file: str | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.setting = setting
        self.value = value
        self.file = file
        self.line = line
        self.hint = hint

    def at(self, file: str | None, line: int | None) -> ConfigError:
        """The same error, told where its value was written."""
        return ConfigError(
            self.message,
            setting=self.setting,
            value=self.value,
            file=file,
            line=line,
            hint=self.hint,
        )

    def __str__(self) -> str:
        where = ""
        if self.file is not None:
            where = f"{self.file}: " if self.line is None else f"{self.file}, line {self.line}: "
        if self.hint is None:
            return where + self.message
        end = "" if self.message.endswith((".", "?", "!")) else "."
        return f"{where}{self.message}{end} {self.hint}"


def invalid_value(setting: str, value: str, problem: str, hint: str | None = None) -> ConfigError:
    """The error for one setting with one unusable value, in Kafka's shape."""
    return ConfigError(
        f"Invalid value {value} for configuration {setting}: {problem}",
        setting=setting,
        value=value,
        hint=hint,
    )
