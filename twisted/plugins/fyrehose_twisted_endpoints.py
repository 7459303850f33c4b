# Endpoints by their prefix, for every option that takes one, and for other Twisted programs.
from fyrehose_twisted.net.tls.endpoints import MutualTlsClientParser, MutualTlsServerParser

mutual_tls_server = MutualTlsServerParser()
mutual_tls_client = MutualTlsClientParser()
