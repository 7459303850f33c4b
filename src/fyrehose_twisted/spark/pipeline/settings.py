"""Table settings of a pipeline, stored with its tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.spark.pipeline.files import Files
from fyrehose_twisted.spark.pipeline.gold import check_window
from fyrehose_twisted.spark.pipeline.json_payloads import check_field, parse_schema, parse_schema_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SETTINGS_FILE, SCHEMA_FILE = "_fyrehose/settings.json", "_fyrehose/schema.json"
DEFAULT_WINDOW = "1 minute"
SAMPLE = 10_000


@dataclass(frozen=True, slots=True)
class RequestedSettings:
    """Settings requested by the user. ``None`` keeps the stored setting, or else the default.

    :ivar schema: schema of JSON messages as DDL, or a file with it; by default inferred from a sample.
    :ivar sample: number of payloads in that sample.
    :ivar no_json: do not parse payloads as JSON.
    :ivar window: length of a gold window; by default a minute.
    :ivar sent_at: JSON field with the send time; ``""`` for none.
    """

    schema: str | None = None
    sample: int = SAMPLE
    no_json: bool = False
    window: str | None = None
    sent_at: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the tables.

    :ivar window: length of a gold window.
    :ivar sent_at: JSON field with the send time.
    :ivar is_json: whether payloads are parsed as JSON; ``None`` until the first payloads decide it.
    :ivar fields: schema of messages, as JSON.
    """

    window: str = DEFAULT_WINDOW
    sent_at: str | None = None
    is_json: bool | None = None
    fields: str | None = None

    @property
    def schema(self) -> StructType | None:
        """Schema of messages; ``None`` if payloads are not parsed as JSON."""
        return None if self.fields is None else parse_schema(self.fields)


def resolve_settings(spark: SparkSession, previous: Settings | None, requested: RequestedSettings) -> Settings:
    """Apply requested settings to the previous ones and return the result.

    :param previous: stored settings; ``None`` if there are none.
    :raises ConfigurationError: if a requested setting is invalid.
    """
    settings = previous or Settings()
    if requested.window is not None:
        settings = replace(settings, window=check_window(requested.window))
    if requested.sent_at is not None:
        settings = replace(settings, sent_at=check_field(requested.sent_at) if requested.sent_at else None)
    if requested.no_json:
        settings = replace(settings, is_json=False, fields=None)
    elif requested.schema is not None:
        settings = replace(settings, is_json=True, fields=parse_schema_option(spark, requested.schema).json())
    return settings


def load_settings(files: Files) -> Settings | None:
    """Load the stored settings; return ``None`` if there are none. :raises StateFileError: if their format differs."""
    mark = files.read_json(SETTINGS_FILE)
    if mark is None:
        return None
    try:
        kept = Settings(**mark)
    except TypeError:
        raise StateFileError(f"{files.path(SETTINGS_FILE)} was not written by this version of the pipeline") from None
    return replace(kept, fields=files.read_text(SCHEMA_FILE))


def save_settings(files: Files, settings: Settings) -> None:
    """Store the settings."""
    mark: dict[str, Any] = asdict(settings)
    if settings.fields is None:
        files.delete(SCHEMA_FILE)
    else:
        files.write_text(SCHEMA_FILE, settings.fields)
    files.write_json(SETTINGS_FILE, mark | {"fields": None})
