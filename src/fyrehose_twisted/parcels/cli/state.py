"""``fyrehose parcels state``: the application's state that the nodes hold."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from fyrehose_twisted.parcels.client.http_client import ParcelsClient
from fyrehose_twisted.process.atomic_file import replace_file
from fyrehose_twisted.process.terminal import print_hint
from fyrehose_twisted.wording import pluralize


async def show_state(options: argparse.Namespace, client: ParcelsClient) -> int:
    """Run the command and return its exit status."""
    taken = await client.state(linearizable=options.linearizable)
    if options.output is not None:
        replace_file(Path(options.output), taken.data)
    else:
        ends = b"\n" if sys.stdout.isatty() else b""
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
            output.write(taken.data + ends)
    size = pluralize(len(taken.data), "byte")
    print_hint(f"{size}, after event {taken.sequence:,} of cluster id {taken.cluster_id or 'none'}")
    return 0
