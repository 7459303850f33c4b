"""Serve a stream to browsers: a FastAPI application with server-sent events, and a request that publishes.

Each browser is a client of the backbone. When it reconnects, it continues after the last message that it has had.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from fyrehose_twisted import aio
from fyrehose_twisted.errors import FyrehoseError, MessageTooLarge
from fyrehose_twisted.fyrehose import ClientConfig, Message, Start
from fyrehose_twisted.fyrehose.events import MessagesLost

PAGE = """<!doctype html><title>Stream</title><pre id="messages"></pre><script>
const source = new EventSource("events"), log = (line) => document.getElementById("messages").append(line + "\\n");
source.onmessage = (event) => log(event.lastEventId + ": " + JSON.parse(event.data));
source.addEventListener("lost", (event) => log("lost: " + event.data));
</script>"""
MAX_BODY = 64 * 1024


def make_app(backbone: str) -> FastAPI:
    """Return the application for one backbone."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, aio.Stream]]:
        async with aio.connect(backbone) as publisher:
            yield {"publisher": publisher}

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(PAGE)

    @app.get("/events")
    async def events(last_event_id: Annotated[int | None, Header()] = None) -> StreamingResponse:
        start = Start.LIVE if last_event_id is None else last_event_id + 1

        async def frames() -> AsyncIterator[str]:
            # A browser that goes away cancels this, which leaves the backbone.
            async with aio.connect(backbone, config=ClientConfig(start=start)) as stream:
                yield ": connected\n\n"
                async for item in stream.items():
                    match item:
                        case Message():
                            text = json.dumps(item.data.decode(errors="replace"))
                            yield f"id: {item.sequence}\ndata: {text}\n\n"
                        case MessagesLost(first, last):
                            yield f"event: lost\ndata: {first} to {last}\nid: {last}\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.post("/publish")
    async def publish(request: Request) -> dict[str, int]:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise HTTPException(413, f"a message has at most {MAX_BODY:,} bytes")
        try:
            return {"sequence": await request.state.publisher.publish(body)}
        except MessageTooLarge as error:
            raise HTTPException(413, str(error)) from error
        except FyrehoseError as error:
            raise HTTPException(503, str(error)) from error

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone", default="127.0.0.1:2323", metavar="HOST:PORT", help="[%(default)s]")
    parser.add_argument("--port", type=int, default=8000, help="of the site, on loopback [%(default)s]")
    arguments = parser.parse_args()
    uvicorn.run(make_app(arguments.backbone), host="127.0.0.1", port=arguments.port, log_level="warning")
