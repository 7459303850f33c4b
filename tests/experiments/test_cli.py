"""The ``tree-experiment`` command, run in this process."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment
from fyrehose_twisted.experiments.cli import main
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.experiments.report.trial_report import METRIC_DESCRIPTIONS, TrialReport
from fyrehose_twisted.experiments.sweep.interval import confidence_interval
from fyrehose_twisted.experiments.trials.trial import Trial, TrialPlan
from fyrehose_twisted.sim.invariants import InvariantViolated

SMALL = ("--nodes", "120", "--subscribers", "20")


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command and return its output."""

    def ran(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capsys.readouterr())

    return ran


def row(text: str) -> dict[str, str]:
    (found,) = csv.DictReader(StringIO(text))
    return found


class TestText:
    def test_the_text_output_has_all_stages_and_ends_with_a_summary(self, run: Run) -> None:
        status, out, err = run(*SMALL, "--keys", "2", "--kill", "0.1", "--publish", "3")
        assert status == 0
        assert out.startswith("kleinberg(n=120, degree=10.0, seed=1): 120 nodes, 600 links\n\n")
        stages = [line.split()[:4] for line in out.splitlines()[3:6]]
        assert [stage[0] for stage in stages] == ["grown", "published", "healed"]
        assert [stage[2] for stage in stages] == ["120", "120", "108"]
        assert out.endswith(
            "\n40 of 40 subscriptions to 2 keys; 1 root a key; 100 % of the subscribers in the largest tree;"
            " 12 of 12 packets published, 100 % of the deliveries came; all trees hold.\n"
        )
        assert err == ""

    def test_the_text_output_describes_each_metric(self, run: Run) -> None:
        out = run(*SMALL).out
        for name, meaning in METRIC_DESCRIPTIONS.items():
            assert re.search(rf"^{name} +(-|[\d,.]+)  {re.escape(meaning)}$", out, re.MULTILINE), name

    def test_the_report_has_all_metrics_of_an_experiment(self) -> None:
        experiment = TreeExperiment(Topology.ring(5))
        assert set(METRIC_DESCRIPTIONS) == set(experiment.metrics())

    def test_equal_options_produce_equal_output_and_other_seeds_do_not(self, run: Run) -> None:
        options = (*SMALL, "--kill", "0.2", "--churn", "300", "--duration", "60", "--latency", "0.02:0.2")
        one, same, other = run(*options), run(*options), run(*options, "--seed", "2")
        assert one.out == same.out
        assert one.out != other.out

    def test_help_names_every_field_of_a_policy(self, run: Run) -> None:
        status, out, _ = run("--help")
        assert status == 0
        words = " ".join(out.split())
        for field in fields(Policy):
            default = ("no", "yes")[field.default] if isinstance(field.default, bool) else field.default
            assert f"{field.name} [{default}]" in words


class TestForms:
    def test_csv_is_a_heading_and_a_row(self, run: Run) -> None:
        status, out, err = run(*SMALL, "--csv", "--policy", "accept=own,p_max=0.5", "--seed", "7")
        assert status == 0
        found = row(out)
        assert set(METRIC_DESCRIPTIONS) <= set(found)
        assert len(set(next(csv.reader(StringIO(out))))) == len(found)
        assert (found["nodes"], found["seed"], found["policy_accept"], found["policy_p_max"]) == (
            "120",
            "7",
            "own",
            "0.5",
        )
        assert (found["subscribers"], found["reach"], found["repair_time_p50"]) == ("20.0", "1.0", "")
        assert re.fullmatch("20 of 20 subscriptions to 1 key; .*; all trees hold.\n", err)

    def test_a_csv_row_without_heading_has_the_same_columns(self, run: Run) -> None:
        with_heading = run(*SMALL, "--csv").out
        assert run(*SMALL, "--csv", "--no-heading").out == with_heading.split("\n", 1)[1]

    def test_json_is_one_object_that_any_parser_reads(self, run: Run) -> None:
        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is no JSON")

        status, out, _ = run(*SMALL, "--json")
        assert status == 0
        found = json.loads(out, parse_constant=refuse)
        assert [stage["name"] for stage in found["stages"]] == ["grown", "published"]
        assert found["row"]["reach"] == 1.0
        assert found["row"]["repair_time_p50"] is None
        assert found["row"]["violation"] is None

    def test_a_trace_a_page_and_a_drawing_are_of_the_same_run(self, run: Run, tmp_path: Path) -> None:
        trace, page, svg = (tmp_path / name for name in ("t.jsonl", "p.html", "t.svg"))
        options = (*SMALL, "--keys", "2", "--kill", "0.2")
        assert run(*options, "--trace", str(trace), "--page", str(page), "--svg", str(svg)).status == 0
        recording = Recording.read(trace.read_text().splitlines())
        assert len(recording.locations) == 120
        assert len(recording.streams) == 2
        key = next(iter(recording.streams))
        assert key.hex() in page.read_text()
        assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")
        assert f"after {recording.finish:.6g} s" in svg.read_text()
        assert sum(change.kind == "down" for change in recording.network) == 24
        # Nor does it matter whether anybody looks.
        assert run(*options).out == run(*options, "--svg", str(svg)).out

    def test_a_page_needs_no_trace(self, run: Run, tmp_path: Path) -> None:
        assert run(*SMALL, "--page", str(tmp_path / "p.html")).status == 0
        assert [path.name for path in tmp_path.iterdir()] == ["p.html"]

    def test_progress_and_rate_are_shown_on_terminals_only(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        assert run(*SMALL).err == ""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        _, out, err = run(*SMALL)
        assert re.match(r"\r.* 0/21 ", err)
        assert re.search(r"\rtree-experiment: [\d,]+ messages in \d+\.\d s, [\d,]+ per second\n$", err)
        assert out.endswith("all trees hold.\n")


class TestReplicas:
    OPTIONS = (*SMALL, "--kill", "0.1", "--seed", "7")

    def test_each_replica_equals_a_trial_with_its_seed(self, run: Run) -> None:
        found = list(csv.DictReader(StringIO(run(*self.OPTIONS, "--replicas", "3", "--csv").out)))
        assert [one["seed"] for one in found] == ["7", "8", "9"]
        assert found[2] == row(run(*SMALL, "--kill", "0.1", "--seed", "9", "--csv").out)

    def test_intervals_are_those_of_the_rows(self, run: Run) -> None:
        ran = run(*self.OPTIONS, "--replicas", "5", "--json")
        found = json.loads(ran.out)
        hops = [one["subscribe_hops"] for one in found["rows"]]
        assert found["intervals"]["subscribe_hops"] == confidence_interval(hops)._asdict()
        assert found["intervals"]["reach"]["high"] <= 1.0
        assert ran.err == "5 networks with a mean reach of 1; all trees hold.\n"

    def test_the_text_output_has_an_interval_for_each_metric(self, run: Run) -> None:
        lines = run(*SMALL, "--replicas", "2").out.splitlines()
        assert lines[0] == "kleinberg(n=120, degree=10.0, seed=1) and 1 more network with other seeds"
        for name, meaning in METRIC_DESCRIPTIONS.items():
            (line,) = (line for line in lines if line.endswith(f"  {meaning}") and line.startswith(f"{name} "))
            assert re.fullmatch(rf"{name} +(2 +[\d,.]+ +[\d,.]+ to [\d,.]+|0 +- +-)  {re.escape(meaning)}", line)

    def test_a_violation_in_any_replica_fails_the_command(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def check(experiment: TreeExperiment) -> None:
            if experiment.seed == 2:
                raise InvariantViolated("trees", 1.0, ["node 3"], "there are two")

        monkeypatch.setattr(TreeExperiment, "check", check)
        ran = run(*SMALL, "--replicas", "3")
        assert ran.status == 1
        assert ran.out.endswith(
            "3 networks with a mean reach of 1; but in 1 network, trees: at 1.000000 s, node 3: there are two.\n"
        )

    def test_lossy_replicas_are_not_checked(self, run: Run) -> None:
        ran = run(*SMALL, "--replicas", "2", "--loss", "0.01", "--publish", "0")
        assert ran.out.endswith("; trees were not checked, since messages were lost.\n")


class TestMetricsFiles:
    def test_the_series_covers_the_trial(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "series.csv"
        options = ("--churn", "60", "--duration", "100", "--every", "25", "--series", str(file))
        whole = row(run(*SMALL, *options, "--csv").out)
        with file.open() as lines:
            rows = list(csv.DictReader(lines))
        assert [float(one["t"]) for one in rows[:-1]] == [25.0 * (index + 1) for index in range(len(rows) - 1)]
        assert float(rows[-1]["t"]) == float(whole["simulated"])
        assert sum(float(one["messages"]) for one in rows) == float(whole["messages"])
        assert sum(float(one["simulated"]) for one in rows) == pytest.approx(float(whole["simulated"]))
        assert rows[-1]["members"] == whole["members"]

    def test_the_metrics_of_nodes_add_up(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "nodes.csv"
        whole = row(run(*SMALL, "--kill", "0.1", "--by-node", str(file), "--csv").out)
        with file.open() as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) == 120
        total = {name: sum(float(one[name]) for one in rows) for name in rows[0]}
        assert total["up"] == 108
        assert total["sent"] == float(whole["messages"])
        assert total["streams"] == float(whole["members"])


class TestNetworks:
    @pytest.mark.parametrize(
        ("options", "name", "links"),
        [
            ("--topology kleinberg --degree 6 --lattice", "kleinberg(n=120, degree=6.0, seed=1, lattice=True)", 360),
            ("--topology random --degree 4", "random(n=120, degree=4.0, seed=1)", 240),
            ("--topology ring --degree 4", "ring(n=120, reach=2, seed=1)", 240),
            ("--topology swapped --rounds 5", "kleinberg(n=120, degree=10.0, seed=1).swap(rounds=5, seed=1)", 600),
            ("--topology grown --degree 2 --links random --rounds 40", "RandomLinks(n=120, seed=1)", 113),
        ],
    )
    def test_the_topology_matches_the_options(self, run: Run, options: str, name: str, links: int) -> None:
        found = row(run(*SMALL, *options.split(), "--csv").out)
        assert (found["topology"], int(found["links"])) == (name, links)

    def test_a_links_file_is_read(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "links.txt"
        file.write_text("node a 0.5\na b\nb c\nc d\n")
        found = row(run("--topology", "file", str(file), "--csv").out)
        assert (found["nodes"], found["links"], found["subscribers"]) == ("4", "3", "4.0")

    def test_links_have_the_latencies_of_a_file(self, run: Run, tmp_path: Path) -> None:
        links, latencies = tmp_path / "links.txt", tmp_path / "latencies.txt"
        links.write_text("node a 0.3\na b\n")
        latencies.write_text("b a 4\n")
        found = row(run("--topology", "file", str(links), "--latency-file", str(latencies), "--csv").out)
        # From the publisher to the root, and back.
        assert float(found["latency_p99"]) == 8.0

    def test_swapped_locations_fit_the_links_better_than_random_ones(self, run: Run) -> None:
        options = ("--nodes", "400", "--topology", "swapped", "--csv")
        none, many = (row(run(*options, "--rounds", rounds).out) for rounds in ("0", "100"))
        assert float(many["subscribe_hops"]) < float(none["subscribe_hops"])

    def test_latency_ranges_and_loss_take_effect(self, run: Run) -> None:
        slow = row(run(*SMALL, "--csv", "--latency", "0.2:0.4").out)
        assert 0.2 <= float(slow["latency_p50"]) <= 8.0
        assert slow["violation"] == ""
        lossy = run(*SMALL, "--csv", "--loss", "0.05")
        assert lossy.status == 0
        assert "not checked, since messages were lost" in lossy.err
        assert float(row(lossy.out)["loss"]) == 0.05


class TestCourses:
    def test_packets_are_published_in_each_stage(self, run: Run) -> None:
        options = ["--publish", "2", "--keys", "2", "--kill", "0.1", "--churn", "300", "--duration", "60"]
        found = row(run(*SMALL, *options, "--csv").out)
        assert int(found["offered"]) == 12
        assert int(found["killed"]) == 12

    def test_swapping_moves_nodes(self, run: Run, tmp_path: Path) -> None:
        trace = tmp_path / "t.jsonl"
        assert run(*SMALL, "--swapping", "2", "--duration", "60", "--trace", str(trace)).status == 0
        assert '"what":"moved"' in trace.read_text()

    def test_nodes_return_at_the_given_rate(self, run: Run) -> None:
        options = (*SMALL, "--churn", "100", "--duration", "100", "--publish", "0", "--json")
        gone, back = (json.loads(run(*options, *births).out)["stages"][-1]["up"] for births in (("--births", "0"), ()))
        assert gone < 90
        assert back > 100

    def test_churn_stops_after_its_duration(self, run: Run, tmp_path: Path) -> None:
        trace = tmp_path / "t.jsonl"
        options = ("--churn", "20", "--swapping", "5", "--duration", "30", "--publish", "0", "--trace", str(trace))
        grown = json.loads(run(*SMALL, *options, "--json").out)["stages"][0]["at"]
        recording = Recording.read(trace.read_text().splitlines())
        assert grown + 29.0 < max(change.t for change in recording.network) <= grown + 30.0

    def test_all_may_subscribe_at_once(self, run: Run) -> None:
        after_another, at_once = (json.loads(run(*SMALL, "--json", *more).out) for more in ((), ("--at-once",)))
        assert at_once["stages"][0]["at"] < after_another["stages"][0]["at"]
        assert at_once["row"]["subscribed"] == 20

    def test_subscriptions_beyond_max_streams_are_counted_as_failed(self, run: Run) -> None:
        found = row(run(*SMALL, "--csv", "--keys", "10", "--policy", "max_streams=2,retry=no").out)
        assert int(found["subscribed"]) < int(found["tried"]) == 200
        assert float(found["streams_per_node_max"]) <= 2

    def test_the_progress_adds_up_to_the_number_of_steps(self) -> None:
        taken: list[int] = []
        course = TrialPlan(keys=2, subscribers=5, packets=2, kill=0.1, life=200.0, duration=30.0)
        trial = Trial(TreeExperiment(Topology.ring(40, 3)), course, lambda what, steps: taken.append(steps))
        trial.run()
        assert sum(taken) == course.steps
        assert [stage.name for stage in trial.stages] == ["grown", "published", "healed", "churned"]

    @pytest.mark.parametrize("wrong", [{"keys": 0}, {"kill": 1.0}, {"life": 0.0}, {"duration": -1.0}, {"packets": -1}])
    def test_a_trial_plan_out_of_range_is_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ConfigurationError, match=f"^{next(iter(wrong))}="):
            TrialPlan(**wrong)  # type: ignore[arg-type]


class TestFailures:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ("--nodes 1,000", "'1,000' is not a whole number; write it without separators"),
            ("--nodes 0", "n=0: it must be a whole number from 2"),
            ("--degree 2000", "degree=2000.0: with n=1000 it goes from 0 to 999"),
            ("--topology tree", "--topology tree: choose one of kleinberg, random, ring, swapped, grown, file"),
            ("--topology file", "requires one file with links: --topology file FILE"),
            ("--topology ring x", "--topology ring takes no argument; remove x"),
            ("--topology file /nowhere/links", "/nowhere/links: No such file or directory"),
            ("--topology file /nowhere/links --nodes 5", "--nodes does not apply to --topology file"),
            ("--rounds 5", "--rounds does not apply to --topology kleinberg, only to swapped and grown"),
            ("--links random", "--links does not apply to --topology kleinberg, only to grown"),
            ("--topology grown --degree 2.5", "--degree 2.5: in a grown network it is the maximum of links"),
            ("--topology grown --degree 1", "--degree 1: in a grown network .* from 2 to 999"),
            ("--topology ring --lattice", "--lattice does not apply to --topology ring"),
            ("--topology ring --degree 3", "--degree 3: in a ring it is even"),
            ("--topology ring --nodes 5 --degree 6", "--degree 6: in a ring it is even, .* less than --nodes 5"),
            ("--subscribers 2000", "subscribers=2,000: the network has only 1,000 nodes; give fewer"),
            ("--subscribers 0", "subscribers=0: give 1 or more"),
            ("--keys 0", "keys=0: give 1 or more"),
            ("--kill 1", "kill=1: a share of the nodes goes from 0 up to, not including, 1"),
            ("--kill 10%", "'10%' is not a number of 0 or more"),
            ("--loss 1", "loss=1.0: a probability"),
            ("--churn 5 --sessions constant:5", "--churn, --sessions and --session-file exclude one another"),
            ("--pauses constant:5", "--pauses requires --sessions"),
            ("--sessions weibull:5", "'weibull:5': give exponential:MEAN"),
            ("--session-file /nowhere/sessions", "/nowhere/sessions: No such file or directory"),
            ("--replicas 0", "--replicas 0: give 1 to 10,000"),
            ("--replicas 2 --page x.html", "--trace, --page, --svg, --series and --by-node show one network"),
            ("--latency-file /nowhere/latencies", "/nowhere/latencies: No such file or directory"),
            ("--every 0", "--every 0: give a number of more than 0"),
            ("--churn 0", "--churn 0: nodes live for more than 0 seconds"),
            ("--latency -1", "'-1' is not a number of 0 or more"),
            ("--latency nan", "'nan' is not a number"),
            ("--latency 2:1", "'2:1': write the lower number of a range first"),
            ("--policy accept=mine", "accept='mine': choose one of root, own"),
            ("--policy acept=own", "--policy acept=own: give NAME=VALUE, .*; did you mean accept?"),
            ("--policy accept", "--policy accept: give NAME=VALUE"),
            ("--policy max_htl=x", "--policy max_htl=x: 'x' is not a whole number"),
            ("--policy retry=maybe", "--policy retry=maybe: 'maybe' is not yes or no"),
            ("--policy max_htl=0", "max_htl=0 is outside 1 to 255"),
            ("--seed -1", "'-1' is not a whole number"),
            ("--csv --json", "not allowed with"),
            ("--no-heading", "--no-heading requires --csv"),
            ("--trace /nowhere/trace", "/nowhere/trace: No such file or directory"),
            ("--page -", "require a file name, not -"),
            ("--trace x --svg ./x", "two options name the same file"),
            ("--colour red", "unrecognized arguments: --colour red"),
        ],
    )
    def test_usage_errors_are_reported_in_one_line(self, run: Run, options: str, problem: str) -> None:
        status, out, err = run(*options.split())
        assert status == 2
        assert out == ""
        assert err.count("\n") == 1
        assert re.match(f"tree-experiment: .*{problem.replace('?', '[?]')}", err), err

    def test_a_network_too_large_for_a_page_is_refused_before_it_runs(self, run: Run, tmp_path: Path) -> None:
        status, _, err = run("--nodes", "6000", "--page", str(tmp_path / "p.html"))
        assert status == 2
        assert "a page can show 5,000 nodes, but there are 6,000; use --svg or fewer --nodes" in err

    def test_a_malformed_line_of_a_links_file_is_named(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "links.txt"
        file.write_text("a b\nc\n")
        status, _, err = run("--topology", "file", str(file))
        assert status == 2
        assert "line 2" in err

    def test_an_invalid_tree_sets_the_exit_status(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        grow = Trial._grow

        def plant(trial: Trial) -> None:
            grow(trial)
            world = trial.experiment._network
            child, parent = next(
                (one, up) for one, up in trial.experiment.tree(trial.keys[0]).items() if up is not None
            )
            stream = world.nodes[parent].streams[trial.keys[0]]
            stream.subscribers = {one: None for one in stream.subscribers if one.node != child}

        monkeypatch.setattr(Trial, "_grow", plant)
        status, out, _ = run(*SMALL, "--publish", "0")
        assert status == 1
        assert re.search(r"; but .*symmetry.*\.\n$", out)

    def test_a_network_that_does_not_become_quiet_sets_the_exit_status(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(self: Trial) -> None:
            raise OperationalError("the network is not quiet")

        monkeypatch.setattr(Trial, "_settle", never)
        assert run(*SMALL) == (1, "", "tree-experiment: the network is not quiet\n")

    @pytest.mark.parametrize(
        ("raised", "status", "said"),
        [
            (KeyboardInterrupt(), 1, "interrupted"),
            (MemoryError(), 2, "not enough memory for a network of this size; use fewer --nodes"),
            (OSError(28, "No space left on device", "t.jsonl"), 2, "t.jsonl: No space left on device"),
        ],
    )
    def test_interrupts_and_errors_are_reported(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, raised: BaseException, status: int, said: str
    ) -> None:
        def fail(self: Trial) -> None:
            raise raised

        monkeypatch.setattr(Trial, "run", fail)
        assert run(*SMALL) == (status, "", f"tree-experiment: {said}\n")

    def test_tree_command_runs_without_standard_error(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "stderr", None)
        with pytest.raises(SystemExit) as ended:
            main([*SMALL, "--csv"])
        sys.stderr.close()
        assert ended.value.code == 0
        assert row(capsys.readouterr().out)["reach"] == "1.0"


def test_missing_values_are_shown_as_a_dash() -> None:
    trial = Trial(TreeExperiment(Topology.ring(10)), TrialPlan(subscribers=3, packets=0))
    trial.run()
    text = "\n".join(TrialReport(trial).lines())
    assert re.search(r"^latency_p50 +-  ", text, re.MULTILINE)
    assert re.search(r"^cycles +0  ", text, re.MULTILINE)
