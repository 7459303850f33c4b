"""Publish ticks at an interval, or print the ticks of all publishers: ticker.py on asyncio."""

from __future__ import annotations

import argparse
import asyncio
import json
from itertools import count

from fyrehose_twisted import aio
from fyrehose_twisted.errors import FyrehoseError, MessagesMissing


async def publish(options: argparse.Namespace) -> None:
    async with aio.connect(options.backbone) as stream:
        for number in range(options.count) if options.count else count():
            sequence = await stream.publish(json.dumps({"name": options.name, "tick": number}).encode())
            print(f"{options.name} tick {number} is message {sequence}", flush=True)
            await asyncio.sleep(options.interval)


async def subscribe(options: argparse.Namespace) -> None:
    left = options.count
    async with aio.connect(options.backbone) as stream:
        while left != 0:
            try:
                message = await anext(stream)
            except MessagesMissing as missing:
                print(missing, flush=True)
                continue
            tick = json.loads(message.data)
            print(f"message {message.sequence}: {tick['name']} tick {tick['tick']}", flush=True)
            left = None if left is None else left - 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("publish", "subscribe"))
    parser.add_argument("--backbone", default="127.0.0.1:2323", metavar="HOST:PORT", help="[%(default)s]")
    parser.add_argument("--name", default="ticker", help="of the publisher [%(default)s]")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="between ticks [%(default)g]")
    parser.add_argument("--count", type=int, metavar="N", help="stop after N ticks")
    arguments = parser.parse_args()
    try:
        asyncio.run(publish(arguments) if arguments.role == "publish" else subscribe(arguments))
    except FyrehoseError as error:
        raise SystemExit(f"async_ticker: {error}") from None
