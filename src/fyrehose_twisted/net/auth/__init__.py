"""Mutual authentication of connections by a shared secret."""

from fyrehose_twisted.net.auth.authenticator import HYDRA as HYDRA
from fyrehose_twisted.net.auth.authenticator import REASONS as REASONS
from fyrehose_twisted.net.auth.authenticator import TIMEOUT as TIMEOUT
from fyrehose_twisted.net.auth.authenticator import AuthenticationFailed as AuthenticationFailed
from fyrehose_twisted.net.auth.authenticator import Authenticator as Authenticator
from fyrehose_twisted.net.auth.handshake import MAX_BLANK_LINES as MAX_BLANK_LINES
from fyrehose_twisted.net.auth.handshake import MAX_PENDING as MAX_PENDING
from fyrehose_twisted.net.auth.handshake import MAX_PROOF_LINE as MAX_PROOF_LINE
from fyrehose_twisted.net.auth.handshake import AuthClientEndpoint as AuthClientEndpoint
from fyrehose_twisted.net.auth.handshake import AuthFactory as AuthFactory
from fyrehose_twisted.net.auth.handshake import AuthProtocol as AuthProtocol
from fyrehose_twisted.net.auth.handshake import AuthRole as AuthRole
from fyrehose_twisted.net.auth.handshake import auth_server_factory as auth_server_factory
