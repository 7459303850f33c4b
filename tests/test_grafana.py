"""Grafana dashboard and Prometheus rules: documented metrics, valid layout."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "howto" / "metrics.md").read_text(encoding="utf-8")
TABLES = PAGE + "".join(
    (ROOT / "docs" / "howto" / f"{name}.md").read_text(encoding="utf-8") for name in ("query", "frontend")
)
RULES = (ROOT / "deploy" / "grafana" / "alerts.yml").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "fyrehose.json").read_text(encoding="utf-8"))
ROWS = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

EVERYWHERE = {"job", "instance"}
"""Labels added by Prometheus."""

DOCUMENTED: dict[str, set[str]] = {}
"""Labels of each metric in the tables of the metrics page."""
for metric, names in re.findall(r"^\| `(fyrehose_[a-z_]+)` \| \w+ \| (.*?)\|", TABLES, re.MULTILINE):
    DOCUMENTED.setdefault(metric, set()).update(re.findall(r"`(\w+)`", names))
# Not exported by every backbone; the rules have a fallback.


class Rule(NamedTuple):
    """One alert rule."""

    name: str
    expression: str
    summary: str


def rules() -> list[Rule]:
    """Return the alert rules, which use a line-based subset of YAML."""
    found = re.findall(
        r"^      - alert: (\w+)\n        expr: (.+)\n        for: \d+[smh]\n        labels:\n"
        r'          severity: (?:warning|critical)\n        annotations:\n          summary: (".+")\n',
        RULES,
        re.MULTILINE,
    )
    assert len(found) == RULES.count("alert:")
    return [Rule(name, expression, json.loads(summary)) for name, expression, summary in found]


def metrics_of(expression: str) -> set[str]:
    """Return the metrics in a PromQL expression."""
    return set(re.findall(r"\bfyrehose_\w+", re.sub(r'"[^"]*"', "", expression)))


def check(expression: str) -> None:
    """Check that metrics and labels of an expression exist, and that counters are not used as gauges."""
    assert metrics_of(expression)
    assert metrics_of(expression) <= DOCUMENTED.keys()
    assert expression.count("(") == expression.count(")")
    for name, matchers in re.findall(r"(fyrehose_\w+)\{(.*?)\}", expression):
        assert set(re.findall(r'(\w+)(?:=|!=|=~|!~)"', matchers)) <= DOCUMENTED[name] | EVERYWHERE, expression
    known = set().union(*(DOCUMENTED[name] for name in metrics_of(expression))) | EVERYWHERE
    for labels in re.findall(r"\b(?:by|on) \((.*?)\)", expression):
        assert set(labels.split(", ")) <= known, expression
    compared = re.sub(r"\((\S+) unless \1 offset \w+\)", "", expression)
    assert "_total" not in re.sub(r"\b(?:rate|increase)\(fyrehose_\w+", "", compared), expression


@pytest.mark.parametrize("panel", [pytest.param(panel, id=f"{panel['id']} {panel['title']}") for panel in PANELS])
def test_each_grafana_panel_uses_documented_metrics(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        check(target["expr"])
        told = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert told <= set().union(*(DOCUMENTED[name] for name in metrics_of(target["expr"]))) | EVERYWHERE
        for selector in re.findall(r"fyrehose_\w+(\{.*?\})", target["expr"]):
            assert selector.startswith('{job=~"$job", instance=~"$instance"')


def test_grafana_panel_ids_are_unique() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert "uid" not in DASHBOARD or DASHBOARD["uid"] is None
    assert "id" not in DASHBOARD or DASHBOARD["id"] is None


def test_grafana_panels_do_not_overlap() -> None:
    def squares(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        return {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }

    for panel in DASHBOARD["panels"]:
        assert panel["gridPos"]["x"] >= 0
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["gridPos"]["h"] > 0
    for one, other in combinations(DASHBOARD["panels"], 2):
        assert squares(one).isdisjoint(squares(other)), (one["title"], other["title"])


def test_every_grafana_row_has_panels() -> None:
    order = sorted(DASHBOARD["panels"], key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"]))
    assert order == DASHBOARD["panels"]
    kinds = [panel["type"] == "row" for panel in order]
    assert kinds[0]
    assert not kinds[-1]
    assert not any(one and other for one, other in pairwise(kinds))
    assert [row["title"] for row in ROWS][:6] == [
        "Services",
        "Backbone",
        "Relays",
        "Clients and journals",
        "Hydra",
        "Parcels",
    ]


def test_grafana_variables_are_defined_and_used() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used <= variables.keys() | {"__rate_interval", "__all"}
    for name in ("job", "instance"):
        assert metrics_of(variables[name]["definition"]) <= DOCUMENTED.keys()
        assert variables[name]["query"]["query"] == variables[name]["definition"]


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in rules()])
def test_each_alert_rule_uses_documented_metrics(rule: Rule) -> None:
    assert rule.name.startswith("Fyrehose")
    assert rule.summary.endswith((".", "?"))
    assert ": " not in rule.expression
    assert " #" not in rule.expression
    check(rule.expression)


def test_alert_rules_match_the_metrics_page() -> None:
    table = re.findall(r"^\| (Fyrehose\w+) \| `(.+)` \| (.+) \|$", PAGE.partition("## Alerts")[2], re.MULTILINE)
    assert [Rule(name, when.replace(r"\|", "|"), meaning) for name, when, meaning in table] == rules()
    assert len({rule.name for rule in rules()}) == len(rules())
