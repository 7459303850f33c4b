"""The HTTP interface of a node: publish, read, follow, be called back, and see the cluster.

What needs treq is not imported here: see :mod:`~fyrehose_twisted.parcels.web.sending`.
"""

from fyrehose_twisted.parcels.web.callback_file import CallbackFile
from fyrehose_twisted.parcels.web.callbacks import Callbacks
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.site import site

__all__ = ["CallbackFile", "Callbacks", "WebConfig", "site"]
