"""File that stores callbacks across restarts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.web.webhooks.callback import Callback
from fyrehose_twisted.process.atomic_file import replace_file

_FORMAT = "fyrehose parcels callbacks 1"
_MAX_SIZE = 2**24


class CallbackFile:
    """JSON file of callbacks, replaced atomically. Only its owner can read it, because it contains secrets."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def load(self) -> list[Callback]:
        """Return the stored callbacks; none if there is no file.

        :raises StateFileError: if the file cannot be read or is malformed.
        """
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_SIZE)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateFileError(f"{self._path} cannot be read: {error.strerror}") from error
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            content = None
        match content:
            case {"format": str(name), "callbacks": list(saved)} if name == _FORMAT:
                try:
                    return [Callback.from_stored(item) for item in saved]
                except StateFileError as error:
                    raise StateFileError(f"{self._path}: {error}") from None
        raise StateFileError(f"{self._path} is not a callback file; move it away to start without callbacks")

    def save(self, callbacks: Sequence[Callback]) -> None:
        """Replace the stored callbacks. They are durable on return.

        :raises StateFileError: if that fails; then the previous content is intact.
        """
        content = {"format": _FORMAT, "callbacks": [callback.stored_fields() for callback in callbacks]}
        data = json.dumps(content, indent=1).encode()
        new = self._path.with_name(self._path.name + ".new")
        try:
            replace_file(self._path, data, new, mode=0o600)
        except OSError as error:
            raise StateFileError(f"{self._path} cannot be written: {error.strerror}") from error
