"""Questions that wait for an answer at once."""

import itertools

from fairlead.cluster.front.question_limit import OF_ALL, OF_ONE, QuestionLimit


def test_who_asks_much_keeps_nobody_else_from_asking() -> None:
    limit = QuestionLimit()
    asked = [limit.take("eve") for _ in range(OF_ONE + 1)]
    assert asked == [""] * OF_ONE + [f"{OF_ONE} questions of yours are being answered"]
    assert limit.take("ann") == ""
    limit.give_back("eve")
    assert limit.take("eve") == ""


def test_all_together_ask_so_many_at_once() -> None:
    limit = QuestionLimit()
    users = map(str, itertools.count())
    taken = list(itertools.takewhile(lambda user: not limit.take(user), users))
    assert len(taken) == OF_ALL
    assert limit.take("ann") == "questions of many others are being answered"
    limit.give_back(taken[0])
    assert limit.take("ann") == ""
