# twistd imports this file whenever it lists its services, so it imports only ServiceMaker.
# Never add an __init__.py beside it: the package twisted.plugins belongs to Twisted.
from twisted.application.service import ServiceMaker

fyrehose_backbone = ServiceMaker(
    "Fyrehose backbone",
    "fyrehose_twisted.fyrehose.service.backbone_tap",
    "Number every message that is pushed over UDP, and deliver it to all subscribers.",
    "fyrehose-backbone",
)

fyrehose_relay = ServiceMaker(
    "Fyrehose relay",
    "fyrehose_twisted.fyrehose.service.relay_tap",
    "Pass the stream of a fyrehose backbone on to more clients, in trees of any depth.",
    "fyrehose-relay",
)

fyrehose_client = ServiceMaker(
    "Fyrehose client",
    "fyrehose_twisted.fyrehose.service.client_tap",
    "Subscribe to a fyrehose backbone, and repair losses from other clients.",
    "fyrehose-client",
)

fyrehose_journal = ServiceMaker(
    "Fyrehose journal",
    "fyrehose_twisted.fyrehose.service.journal_tap",
    "Keep the stream of a fyrehose backbone on disk, and repair the losses of other clients.",
    "fyrehose-journal",
)

parcels_node = ServiceMaker(
    "Parcels node",
    "fyrehose_twisted.parcels.service.tap",
    "Run a node of a cluster that keeps one order of events, over TCP and HTTP.",
    "parcels-node",
)

hydra_node = ServiceMaker(
    "Hydra node",
    "fyrehose_twisted.hydra.service.tap",
    "Run a node of a network whose elected leader holds the connection to IRC.",
    "hydra-node",
)

freenet_node = ServiceMaker(
    "Freenet node",
    "fyrehose_twisted.freenet.service.tap",
    "Publish and subscribe to streams by key, over trees of nodes that repair themselves.",
    "freenet-node",
)

fyrehose_query = ServiceMaker(
    "Fyrehose query",
    "fyrehose_twisted.query.tap",
    "Serve journals over HTTP, as ranges and live streams, and a dashboard.",
    "fyrehose-query",
)

fyrehose_frontend = ServiceMaker(
    "Fyrehose frontend",
    "fyrehose_twisted.fyrehose.frontend.tap",
    "Publish to a fyrehose backbone from HTTP, or from lines over TCP.",
    "fyrehose-frontend",
)
