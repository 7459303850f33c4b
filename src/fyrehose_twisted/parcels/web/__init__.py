"""The HTTP interface of a node: publish, read, follow, be called back, and see the cluster.

What needs treq is not imported here: see :mod:`~fyrehose_twisted.parcels.web.webhooks.http_sender`.
"""

from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.site import site
from fyrehose_twisted.parcels.web.webhooks.file import CallbackFile
from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks

__all__ = ["CallbackFile", "Callbacks", "WebConfig", "site"]
