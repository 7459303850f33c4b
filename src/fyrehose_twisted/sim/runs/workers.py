"""Processes that do tasks, and what is to be done when one of them dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import wait as wait_for
from threading import Thread
from types import ModuleType
from typing import Generic, TypeVar

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


class WorkerPool(Generic[TaskT, ResultT]):
    """Calls ``work`` with each task, in ``jobs`` processes at once.

    The processes begin with a fresh interpreter and import what ``work`` and the tasks need; the script that is running
    is not among that, so it needs no ``if __name__ == "__main__"``. SIGINT does not reach them, and they end when this
    process does.

    :param work: a function at the top of a module.
    :param died: makes the result of a task whose process died both times that it was tried. A process that dies takes
        the tasks of the others with it; they are then tried again, one at a time.
    :param fork: begin with a copy of this process instead, for tasks that need what only the running script defines.
    """

    def __init__(
        self, work: Callable[[TaskT], ResultT], died: Callable[[TaskT], ResultT], jobs: int, *, fork: bool = False
    ) -> None:
        self._work = work
        self._died = died
        self._jobs = jobs
        self._fork = fork

    def results(self, tasks: Iterator[TaskT]) -> Generator[ResultT, None, None]:
        """Yield results as they come, and take tasks no sooner than they can be done.

        What ``work`` raises is raised here. Closing the generator kills the processes.
        """
        while unfinished := (yield from self._run_tasks(tasks, self._jobs, self._jobs + 1)):
            suspects = iter(unfinished)
            while culprits := (yield from self._run_tasks(suspects, 1, 1)):
                yield self._died(culprits[0])

    def _run_tasks(self, tasks: Iterator[TaskT], jobs: int, at_once: int) -> Generator[ResultT, None, list[TaskT]]:
        """Yield results until there are no more tasks or a process dies; return those that were begun in vain."""
        with self._executor(jobs) as executor:
            running: dict[Future[ResultT], TaskT] = {}
            unfinished: list[TaskT] = []
            while True:
                if not unfinished:
                    for task in islice(tasks, at_once - len(running)):
                        running[self._submit(executor, task)] = task
                if not running:
                    return unfinished
                done = wait(running, return_when=FIRST_COMPLETED).done
                for future in [future for future in running if future in done]:
                    task = running.pop(future)
                    try:
                        result = future.result()
                    except BrokenProcessPool:
                        unfinished.append(task)
                    else:
                        yield result

    @contextmanager
    def _executor(self, jobs: int) -> Iterator[ProcessPoolExecutor]:
        context = multiprocessing.get_context("fork" if self._fork else "spawn")
        executor = ProcessPoolExecutor(jobs, context, initializer=_exit_with_parent)
        try:
            yield executor
        except BaseException:
            # There is no other way to stop what they are doing before Python 3.14.
            for process in list((executor._processes or {}).values()):
                process.kill()
            raise
        finally:
            executor.shutdown(cancel_futures=True)

    def _submit(self, executor: ProcessPoolExecutor, task: TaskT) -> Future[ResultT]:
        try:
            with _spawn_environment(script=self._fork):
                return executor.submit(self._work, task)
        except BrokenProcessPool as error:
            future: Future[ResultT] = Future()
            future.set_exception(error)
            return future


@contextmanager
def _spawn_environment(*, script: bool) -> Iterator[None]:
    """Let processes that are started now inherit a blocked SIGINT, and know nothing of our ``script``, unless they may.

    A terminal sends SIGINT to all of us, and to one that has just begun it would be a traceback.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    main = sys.modules["__main__"]
    try:
        if not script:
            # multiprocessing tells them to import what it finds here, which would run the script again.
            sys.modules["__main__"] = ModuleType("__main__")
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _exit_with_parent() -> None:
    """Let this process end when its parent does; it could not tell from its queue, whose other end it has too."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            wait_for([parent.sentinel])
            os._exit(1)

        Thread(target=watch, daemon=True).start()
