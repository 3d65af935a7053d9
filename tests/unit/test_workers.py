"""Work that asks for work never waits for a thread that cannot come free."""

from __future__ import annotations

import threading

from inlay.ops.context import Context, Workers
from inlay.storage.memory import MemoryStore


def test_tasks_may_submit_tasks_to_their_own_pool():
    with Workers(2) as executor:
        ctx = Context(store=MemoryStore(), root="t", uri="memory://m/t", executor=executor)

        def outer(n: int) -> int:
            return sum(ctx.map(lambda m: n * m, range(20)))

        done: list[int] = []
        asker = threading.Thread(target=lambda: done.extend(ctx.map(outer, range(20))), daemon=True)
        asker.start()
        asker.join(timeout=20)
        assert done == [190 * n for n in range(20)]


def test_an_error_in_a_task_is_raised_where_the_result_is_asked_for():
    def broken(_: int) -> int:
        raise ValueError("x")

    with Workers(2) as executor:
        ctx = Context(store=MemoryStore(), root="t", uri="memory://m/t", executor=executor)
        try:
            list(ctx.map(broken, range(3)))
        except ValueError as error:
            assert str(error) == "x"
        else:
            raise AssertionError("nothing was raised")
