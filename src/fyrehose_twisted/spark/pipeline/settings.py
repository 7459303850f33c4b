"""How a pipeline's tables are made: said once, and kept with them."""

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
    """What a user says. ``None``: as before, or else as by default.

    :ivar schema: that of JSON messages, as DDL, or a file with it. By default it is inferred from a sample.
    :ivar sample: so many payloads are looked at to infer it.
    :ivar no_json: payloads are no JSON.
    :ivar window: how long a window of gold is; by default a minute.
    :ivar sent_at: the field of the JSON that says when a message was sent; ``""`` for none.
    """

    schema: str | None = None
    sample: int = SAMPLE
    no_json: bool = False
    window: str | None = None
    sent_at: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """How the tables are made.

    :ivar window: how long a window of gold is.
    :ivar sent_at: the field of the JSON that says when a message was sent.
    :ivar is_json: whether payloads are read as JSON; ``None`` if that is not known before there are some.
    :ivar fields: the schema of messages, as JSON.
    """

    window: str = DEFAULT_WINDOW
    sent_at: str | None = None
    is_json: bool | None = None
    fields: str | None = None

    @property
    def schema(self) -> StructType | None:
        """The schema of messages, ``None`` if payloads are not read as JSON."""
        return None if self.fields is None else parse_schema(self.fields)


def resolve_settings(spark: SparkSession, previous: Settings | None, requested: RequestedSettings) -> Settings:
    """Return the settings that hold from now on.

    :param previous: those that held before.
    :raises ConfigurationError: if what is wanted is not possible.
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
    """Return the settings that hold, ``None`` if there are none yet. :raises StateFileError: if they are not ours."""
    mark = files.read_json(SETTINGS_FILE)
    if mark is None:
        return None
    try:
        kept = Settings(**mark)
    except TypeError:
        raise StateFileError(f"{files.path(SETTINGS_FILE)} was not written by this version of the pipeline") from None
    return replace(kept, fields=files.read_text(SCHEMA_FILE))


def save_settings(files: Files, settings: Settings) -> None:
    """Keep the settings."""
    mark: dict[str, Any] = asdict(settings)
    if settings.fields is None:
        files.delete(SCHEMA_FILE)
    else:
        files.write_text(SCHEMA_FILE, settings.fields)
    files.write_json(SETTINGS_FILE, mark | {"fields": None})
