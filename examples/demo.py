"""A backbone, a relay, three subscribers, two journals and a publisher, with links that lose and reorder datagrams.

The publisher sends the flights that left New York in January 2013 as JSON. On the way a journal is killed and started
again, and then the backbone is. Every process is real, and so are every socket and every file. In the end Spark
compares the journals and counts the flights in them. A dashboard shows it all, on a terminal until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from demo_checks import as_text, check_streams
from demo_network import JOURNALS, SUBSCRIBERS, Network
from demo_pipeline import OUT, Pipeline, counted
from demo_processes import DemoError, Interrupted, Processes
from demo_story import Story
from flights import JANUARY, YEAR, flights

KEPT_FLIGHTS, KEPT_PAUSE = 200, 1.0
"""Flights that are published after the last step, and the seconds after which they are published again."""
AGAIN = 6
"""The step in which the backbone is killed sends one of so many flights again."""


class Demo:
    """Steps of the demo, in order."""

    def __init__(self, options: argparse.Namespace, processes: Processes, story: Story) -> None:
        self.options = options
        self.processes = processes
        self.story = story
        self.pipeline: Pipeline | None = None
        self.passed = False

    def run(self) -> None:
        """Run all steps, and go on publishing with ``--keep``. :raises DemoError: if the demo cannot continue."""
        self.start(min(self.options.flights, YEAR))
        messages = list(flights(self.options.flights))
        again = messages[: max(1, len(messages) // AGAIN)]
        nobody = self.kill_a_journal(messages)
        nobody += self.kill_the_backbone(again)
        if self.pipeline is not None:
            self.compare(self.pipeline, nobody)
            self.count(self.pipeline, [*messages, *again])
            self.draw(self.pipeline)
        self.end()
        if self.options.keep:
            self.keep(messages[:KEPT_FLIGHTS])

    def start(self, count: int) -> None:
        """Start all processes."""
        options, story = self.options, self.story
        period = "January 2013" if count <= JANUARY else "2013"
        story.say(
            f"{count:,} flights that left New York in {period} go as JSON over UDP from a publisher to {SUBSCRIBERS}"
            f" subscribers\nand {JOURNALS} journals. Links lose {options.loss:.1%} of all datagrams and reorder as many"
            f" (--seed {options.seed})."
        )
        story.begin_act(
            "Start a backbone, journals, subscribers, a publisher, lossy links between them, and a dashboard"
        )
        self.network = Network(self.processes, story, options.loss, options.seed)
        story.outcome("all of them are running")
        story.say(f"   Dashboard while this runs: {self.network.dashboard}")
        if not options.no_spark:  # It starts while messages flow.
            journals = {journal.name: journal.directory for journal in self.network.journals}
            self.pipeline = Pipeline(self.processes, journals, options.out, story)

    def kill_a_journal(self, messages: Sequence[bytes]) -> int:
        """Publish while a journal is killed with SIGKILL and restarted on its directory."""
        story, journal, whole = self.story, self.network.journals[-1], 0

        def kill(_: int) -> None:
            nonlocal whole
            journal.process.kill()
            whole = journal.next() - 1
            journal.process.start()

        story.begin_act(f"Publish {len(messages):,} flights; halfway, kill -9 journal {JOURNALS} and start it again")
        self.network.publish(messages, kill)
        outcome = "every flight was delivered to all subscribers, in order and exactly once, and the journals are equal"
        nobody = check_streams(story, self.network, outcome)
        story.detail(f"journal {JOURNALS} at its kill", f"was complete up to {whole:,}")
        return nobody.count

    def kill_the_backbone(self, messages: Sequence[bytes]) -> int:
        """Publish some again while the backbone is killed with SIGKILL and restarted on its state file."""
        story, network, before = self.story, self.network, max(self.network.numbers)
        last = came_back = 0

        def kill(published: int) -> None:
            nonlocal last, came_back
            came_back = published
            network.backbone.process.kill()
            last = network.backbone.last_number()
            network.backbone.process.start()

        story.begin_act(f"Publish {len(messages):,} of them again; halfway, kill -9 the backbone and start it again")
        network.publish(messages, kill)
        story.check("numbers assigned twice", len(network.numbers) - len(set(network.numbers)))
        nobody = check_streams(story, network, "no number was assigned twice, and no flight is lost", before)
        following = min((number for number in network.numbers if number > last), default=None)
        story.detail("last number at kill", f"{last:,}; {came_back:,} of the flights were confirmed by then")
        unsent = nobody.range_of(last)
        never = "" if unsent is None else f"; {as_text([unsent])} assigned and never sent"
        story.detail("numbers afterwards", f"{'none' if following is None else f'{following:,} and up'}{never}")
        for journal in network.journals:
            story.remark(f"{journal.name} says", journal.stop())
        return nobody.count

    def compare(self, pipeline: Pipeline, nobody: int) -> None:
        """Let Spark compare the journals."""
        story = self.story
        story.begin_act("Spark compares the journals number by number")
        with self.network.waiting("Spark compares"):
            found, verdict = pipeline.verify()
        findings = {name: one["numbers"] for name, one in found["findings"].items()}
        story.check("diverging numbers", sum(count for name, count in findings.items() if "diverg" in name))
        story.check("numbers in no journal", findings.get("missing/nobody", 0), nobody)
        story.outcome(verdict)
        if nobody:
            story.detail(
                "missing numbers", f"{nobody:,}, those not delivered to any client: every flight has another number"
            )

    def count(self, pipeline: Pipeline, messages: Sequence[bytes]) -> None:
        """Let Spark build tables of the journals, and compare them with the published messages."""
        story = self.story
        story.begin_act("Spark builds tables of the journals, and counts flights and miles of each carrier")
        with self.network.waiting("Spark counts"):
            pipeline.refine()
        traffic, expected, carriers = pipeline.traffic(), counted(messages), pipeline.carriers()
        story.check("flights too few", len(messages) - (traffic["messages"] - traffic["repeats"]))
        story.check("carriers that differ", sum(carriers.get(one) != expected[one] for one in expected | carriers))
        flights, miles = (sum(column) for column in zip(*carriers.values(), strict=True))
        story.outcome(f"{flights:,} flights of {len(carriers)} carriers, {miles:,} miles, as in the source")

    def draw(self, pipeline: Pipeline) -> None:
        """Let Spark render the page."""
        self.story.begin_act("Spark renders a page of its results")
        with self.network.waiting("Spark renders"):
            page = pipeline.report()
        self.story.outcome(f"{page.stat().st_size / 1e6:.1f} MB, self-contained")

    def end(self) -> None:
        """Print the summary."""
        story, total = self.story, len(self.network.numbers)
        if story.wrong:
            raise DemoError(f"{story.wrong} of {story.checks} checks failed; see WRONG above")
        spark = ["Spark compared the journals, and its counts match the source."] if self.pipeline else []
        story.say(
            f"\nmake demo: {story.checks} checks passed in {story.seconds:.0f} s.",
            f"{total:,} flights were delivered to {SUBSCRIBERS} subscribers, in order and exactly once, and stored in"
            f" {JOURNALS} journals, equal byte for byte,",
            "through lossy links, kill -9 of a journal and kill -9 of the backbone. No number was assigned twice.",
            *spark,
        )
        if self.pipeline:
            story.say(f"Tables and the page are in {self.options.out}; open report.html there.")
        self.passed = True
        if not self.options.keep:
            story.say("The dashboard has ended with the demo; make demo KEEP=1 keeps both running.")

    def keep(self, messages: Sequence[bytes]) -> None:
        """Publish again and again until a signal comes."""
        for journal in self.network.journals:
            journal.process.start()
        self.story.say(
            "",
            f"Open {self.network.dashboard} in a browser: the dashboard of this network, which goes on publishing.",
            "Press Ctrl-C to end it.",
        )
        while True:
            self.network.publish_more(len(messages), KEPT_PAUSE)


def main(options: argparse.Namespace) -> int:
    """Run the demo and return its exit status: 1 if a check failed or the demo did."""
    demo: Demo | None = None
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fyrehose-demo-", ignore_cleanup_errors=True) as directory,
            Processes(Path(directory)) as processes,
        ):
            demo = Demo(options, processes, Story(verbose=options.verbose))
            demo.run()
    except Interrupted as interrupted:
        if demo is not None and demo.passed:
            print("\nAll processes of the demo have ended.")
            return 0
        complain(f"{interrupted}; all its processes have ended")
        return 128 + interrupted.number
    except DemoError as error:
        complain(str(error))
        return 1
    except BrokenPipeError:
        # Nobody reads this any more, and Python would say so again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def complain(problem: str) -> None:
    """Report why the demo ended early."""
    print(f"\ndemo: {problem}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how_many = parser.add_mutually_exclusive_group()
    how_many.add_argument(
        "--flights", type=int, default=JANUARY, metavar="N", help="number of flights [those of January, %(default)s]"
    )
    how_many.add_argument("--year", dest="flights", action="store_const", const=YEAR, help=f"all {YEAR:,} of 2013")
    parser.add_argument(
        "--loss", type=float, default=0.05, help="share of datagrams that links lose, and reorder [%(default)s]"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="seed of the losses")
    parser.add_argument("--no-spark", action="store_true", help="skip the steps with Spark, which take longest")
    parser.add_argument("--out", type=Path, default=OUT, help="directory of tables and page [%(default)s]")
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)),
        help="go on publishing after the last step, with the dashboard, until Ctrl-C [on a terminal only]",
    )
    parser.add_argument("--verbose", action="store_true", help="show every check, and the output of Spark's commands")
    sys.exit(main(parser.parse_args()))
