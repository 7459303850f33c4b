"""HTTP API of a node: publish, read and follow events, register callbacks, and inspect the cluster.

Code that needs treq is not imported here. See :mod:`~fyrehose_twisted.parcels.web.webhooks.http_sender`.
"""

from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.site import site
from fyrehose_twisted.parcels.web.webhooks.file import CallbackFile
from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks

__all__ = ["CallbackFile", "Callbacks", "WebConfig", "site"]
