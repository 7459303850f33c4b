# twistd imports this file each time it lists its services, so it imports ServiceMaker and nothing of ours.
# No __init__.py may ever stand beside it: twisted.plugins belongs to Twisted.
from twisted.application.service import ServiceMaker

fyrehose_backbone = ServiceMaker(
    "Fyrehose backbone",
    "fyrehose_twisted.fyrehose.service.backbone_tap",
    "Number every message pushed to it over UDP and deliver it to all live subscribers.",
    "fyrehose-backbone",
)

fyrehose_client = ServiceMaker(
    "Fyrehose client",
    "fyrehose_twisted.fyrehose.service.client_tap",
    "Subscribe to a fyrehose backbone and repair what the network loses from other clients.",
    "fyrehose-client",
)

fyrehose_journal = ServiceMaker(
    "Fyrehose journal",
    "fyrehose_twisted.fyrehose.service.journal_tap",
    "Keep the stream of a fyrehose backbone on disk, and give it to whoever misses some of it.",
    "fyrehose-journal",
)

parcels_node = ServiceMaker(
    "Parcels node",
    "fyrehose_twisted.parcels.service.tap",
    "Keep one order of events together with other nodes, over TCP and HTTP.",
    "parcels-node",
)

hydra_node = ServiceMaker(
    "Hydra node",
    "fyrehose_twisted.hydra.service.tap",
    "Elect a leader together with other nodes, which holds the connection to IRC for all of them.",
    "hydra-node",
)

freenet_node = ServiceMaker(
    "Freenet node",
    "fyrehose_twisted.freenet.service.tap",
    "Publish and subscribe to streams by key, over trees that grow by routing on a ring and heal by themselves.",
    "freenet-node",
)

fyrehose_query = ServiceMaker(
    "Fyrehose query",
    "fyrehose_twisted.query.tap",
    "Serve journals over HTTP, as ranges and live, and a page that shows how everything fares.",
    "fyrehose-query",
)

fyrehose_frontend = ServiceMaker(
    "Fyrehose frontend",
    "fyrehose_twisted.fyrehose.frontend.tap",
    "Publish to a fyrehose backbone for whoever speaks HTTP, or lines over TCP.",
    "fyrehose-frontend",
)
