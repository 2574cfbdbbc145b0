"""A limit on the memory of request bodies that are being received: whoever sends most of one, and then
nothing, holds that until the request times out."""

from collections import Counter
from collections.abc import AsyncIterable

from starlette.requests import ClientDisconnect

from fairlead.cluster.front.facade import TooManyError
from fairlead.errors import InputError

FREE = 1 << 16  # bytes of each body that do not count, so that small ones always get through
OF_ONE_USER = 8 << 20  # bytes
OF_ALL_USERS = 64 << 20


class BodyLimit:
    """Bytes of bodies that are not whole yet, by user. Used on one thread (the event loop's)."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    async def receive(
        self, chunks: AsyncIterable[bytes], user: str, most: int, too_large: Exception
    ) -> bytes:
        """Return the body that comes in these pieces. Raises ``too_large`` where it has more than ``most``
        bytes, TooManyError where too much is being received already, InputError where its sender hangs up:
        that is no mistake of the server, whose log shall have nothing of it."""
        data, held = bytearray(), 0
        try:
            async for chunk in chunks:
                data += chunk
                if len(data) > most:
                    raise too_large
                more = max(len(data) - FREE, 0) - held
                self._take(user, more)
                held += more
        except ClientDisconnect:
            raise InputError("the body ended early") from None
        finally:
            self._give_back(user, held)
        return bytes(data)

    def _take(self, user: str, more: int) -> None:
        if not more:
            return
        if self._held[user] + more > OF_ONE_USER:
            raise TooManyError(
                f"bodies of other requests of yours, of {OF_ONE_USER:,} bytes in all, are being received; "
                "try again when they are done"
            )
        if self._held.total() + more > OF_ALL_USERS:
            raise TooManyError(
                f"bodies of many requests, of {OF_ALL_USERS:,} bytes in all, are being received; try again "
                "in a moment"
            )
        self._held[user] += more

    def _give_back(self, user: str, held: int) -> None:
        self._held[user] -= held
        if not self._held[user]:
            del self._held[user]
