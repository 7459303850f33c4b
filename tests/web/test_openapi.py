"""OpenAPI descriptions of all sites, as client generators need them."""

from __future__ import annotations

from typing import Any

import pytest

from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.openapi import describe_openapi as describe_frontend
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.openapi import describe_openapi as describe_parcels
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.openapi import describe_openapi as describe_query

DESCRIPTIONS = {
    "frontend": describe_frontend(FrontendConfig(), token=True),
    "parcels": describe_parcels(WebConfig(), callbacks=True, operator=True, state=True, token=True),
    "query": describe_query(QueryConfig(), token=True),
}


def operations(description: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in description["paths"].values() for operation in path.values()]


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_every_operation_has_a_unique_id(name: str) -> None:
    names = [operation["operationId"] for operation in operations(DESCRIPTIONS[name])]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_every_operation_describes_the_common_error_responses(name: str) -> None:
    for operation in operations(DESCRIPTIONS[name]):
        codes = {"400", "403", "405", "408", "413", "421", "500"}
        codes |= set() if operation.get("security") == [] else {"401"}
        codes |= {"415"} if "requestBody" in operation else set()
        assert codes <= operation["responses"].keys(), operation["operationId"]


@pytest.mark.parametrize(("name", "schema"), [("query", "Record"), ("parcels", "Event"), ("frontend", "Published")])
def test_main_objects_of_each_site_have_named_schemas(name: str, schema: str) -> None:
    assert schema in DESCRIPTIONS[name]["components"]["schemas"]
    assert f"#/components/schemas/{schema}" in str(DESCRIPTIONS[name]["paths"])
