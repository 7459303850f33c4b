"""URLs of object storage, without credentials."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fyrehose_twisted.errors import ConfigurationError

S3_OPTIONS = ("endpoint_override", "region", "scheme")
"""Query parameters of an S3 URL. None of them is a secret."""

_SCHEME = re.compile(r"[a-z][a-z0-9]*(?:\+[a-z][a-z0-9]*)?")
_AZURE = ("abfs", "abfss")
"""Their ``container@account`` is a name; only a password behind it would be a secret."""


def parse_tier_url(text: str) -> str:
    """Check the URL of a bucket and prefix, such as ``s3://bucket/prefix``; return it without a trailing slash.

    :raises ConfigurationError: if it is invalid or has credentials. The message does not repeat them.
    """
    try:
        parts = urlsplit(text)
        netloc, scheme = parts.netloc, parts.scheme
    except ValueError as error:
        raise ConfigurationError(f"the URL of the object storage is invalid: {error}") from None
    if not _SCHEME.fullmatch(scheme) or "://" not in text:
        raise ConfigurationError("the URL of the object storage must have the form s3://BUCKET/PREFIX or file:///DIR")
    host = netloc.rpartition("@")[2]
    if "@" in netloc and (scheme not in _AZURE or ":" in netloc.partition("@")[0]):
        raise ConfigurationError(
            f"the URL {scheme}://…@{host} has credentials, which other users could see in the list of processes;"
            " set them in the environment or in the configuration file of the storage"
        )
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if scheme != "s3" or name not in S3_OPTIONS or not value or "@" in value:
            allowed = f"s3 takes {', '.join(S3_OPTIONS)}" if scheme == "s3" else f"{scheme} takes none"
            raise ConfigurationError(
                f"the URL {scheme}://{host} has an invalid parameter {name!r}; {allowed}, and credentials are read from"
                " the environment"
            )
    if parts.fragment:
        raise ConfigurationError(f"the URL {scheme}://{host} has a fragment; quote # as %23")
    if scheme == "file" and (netloc or not parts.path.startswith("/")):
        raise ConfigurationError("the URL of a directory must have the form file:///DIR")
    if scheme != "file" and not netloc:
        raise ConfigurationError(f"the URL {scheme}:// names no bucket")
    if scheme in _AZURE and ("@" not in netloc or "." not in host):
        raise ConfigurationError(f"the URL must have the form {scheme}://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX")
    return parts._replace(path=parts.path.rstrip("/")).geturl()


def object_url(tier: str, *names: str) -> str:
    """Return the URL of an object below the URL ``tier``."""
    parts = urlsplit(tier)
    return parts._replace(path="/".join([parts.path, *(quote(name, safe="~") for name in names)])).geturl()


def object_path(url: str) -> str:
    """Return bucket and key of an object as one path, as file systems take it."""
    parts = urlsplit(url)
    bucket = parts.netloc.partition("@")[0] if parts.scheme in _AZURE else parts.netloc
    return unquote(bucket + parts.path)


def displayed(url: str) -> str:
    """Return a URL for messages, without its parameters."""
    return urlsplit(url)._replace(query="").geturl()
