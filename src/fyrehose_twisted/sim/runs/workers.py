"""Pool of worker processes that tolerates the death of a worker."""

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
    """Pool of ``jobs`` processes that call ``work`` with each task.

    The processes start with a fresh interpreter and import the modules of ``work`` and of the tasks. They do not import
    the running script, which therefore needs no ``if __name__ == "__main__"``. They ignore SIGINT and end when this
    process ends.

    :param work: function at the top level of a module.
    :param died: returns the result of a task whose process died in both attempts. The death of a process aborts the
        tasks of all processes; they are then retried one at a time.
    :param fork: fork this process instead, for tasks that need definitions of the running script.
    """

    def __init__(
        self, work: Callable[[TaskT], ResultT], died: Callable[[TaskT], ResultT], jobs: int, *, fork: bool = False
    ) -> None:
        self._work = work
        self._died = died
        self._jobs = jobs
        self._fork = fork

    def results(self, tasks: Iterator[TaskT]) -> Generator[ResultT, None, None]:
        """Yield results in order of completion. Tasks are consumed only as processes become free.

        Exceptions of ``work`` are raised here. Closing the generator kills the processes.
        """
        while unfinished := (yield from self._run_tasks(tasks, self._jobs, self._jobs + 1)):
            suspects = iter(unfinished)
            while culprits := (yield from self._run_tasks(suspects, 1, 1)):
                yield self._died(culprits[0])

    def _run_tasks(self, tasks: Iterator[TaskT], jobs: int, at_once: int) -> Generator[ResultT, None, list[TaskT]]:
        """Yield results until all tasks are done or a process dies; return the aborted tasks."""
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
            # Before Python 3.14, killing the processes is the only way to abort their tasks.
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
    """Let processes started in this context inherit a blocked SIGINT, and hide the script unless ``script`` is true.

    A terminal sends SIGINT to the whole process group, and a starting interpreter would print a traceback.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    main = sys.modules["__main__"]
    try:
        if not script:
            # multiprocessing makes them import this file, which would run the script again.
            sys.modules["__main__"] = ModuleType("__main__")
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _exit_with_parent() -> None:
    """End this process when its parent ends. Its queue cannot tell, because this process holds both ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            wait_for([parent.sentinel])
            os._exit(1)

        Thread(target=watch, daemon=True).start()
