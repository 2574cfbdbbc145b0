"""The users of a cluster and their tokens, of which the store has the hashes."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from fairlead.cluster.front.facade import NotFoundError
from fairlead.cluster.protocol.access import Role
from fairlead.cluster.protocol.api_models import UserView
from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.store.rows import UserRow
from fairlead.cluster.store.store import Transaction
from fairlead.cluster.store.tokens import (
    NODE_KEY,
    check_name,
    check_tenant,
    hash_token,
    make_token,
    read_node_key,
)
from fairlead.errors import ConfigError, StoreError
from fairlead.model.option_text import parse_options

FIRST_USERS: tuple[Role, ...] = ("admin", "agent")  # that each cluster has, and their roles
MAX_TOKEN_S = 1e10  # for which a token may be good


def _waits(user: str) -> str:
    """The key under which it is noted that nobody has the first token of this user yet."""
    return f"token of {user}"


def read_users(text: str) -> dict[str, str]:
    """User -> tenant, of ``ann=vision,ben=speech``; "" = none. Raises ConfigError."""
    users = (
        parse_options(text, "--users", expected="USER=TENANT", error=ConfigError) if text else {}
    )
    for user, tenant in users.items():
        if user in FIRST_USERS:
            raise ConfigError(f"--users: {user}: each cluster has it already; it has no tenant")
        try:
            check_name("user", user)
            check_tenant(tenant)
        except ConfigError as problem:
            raise ConfigError(f"--users: {problem}") from None
    return users


class AwaitDurable(Protocol):
    """Waits until the result of a call on the driver's thread is durable."""

    def __call__(self, future: "Future[Any]", withdraw: Callable[[], bool]) -> Any:
        """Return the result. withdraw: cancels the call unless it has begun. Raises StoreError."""


class UserAccounts:
    """Any thread may call; changes return when they are durable."""

    def __init__(
        self,
        engine: ServerLoop,
        *,
        changed: Callable[[list[UserRow]], None],
        await_durable: AwaitDurable,
    ) -> None:
        """changed: told of all users, whenever one comes or goes."""
        self._engine = engine
        self._store = engine.state.store
        self.changed = changed
        self._await_durable = await_durable

    def first_tokens(self, anew: bool = False) -> dict[str, str]:
        """Return tokens of the users ``admin`` and ``agent``, by user, until ``tokens_delivered``; later only
        with ``anew``, else none."""
        if self._store.meta("tokens") is not None and not anew:
            return {}
        if not read_node_key(self._store):
            self._change(lambda t: t.set_meta(NODE_KEY, secrets.token_hex(32)))
        return {role: self._put(role, "", role) for role in FIRST_USERS}

    def missing_tokens(self, users: Mapping[str, str]) -> dict[str, str]:
        """Return tokens, by user, of those who are not known yet, or whose first token is not known to have
        been delivered. users: user -> tenant."""
        known = {row.user for row in self._store.users()}
        missing = [user for user in users if user not in known or self._store.meta(_waits(user))]
        return {user: self._put(user, users[user], "user", waits=True) for user in missing}

    def of_other_tenants(self, users: Mapping[str, str]) -> list[str]:
        """A sentence for each of these users who is known, but not as a user of this tenant. users: user ->
        tenant."""
        known = {row.user: row for row in self._store.users()}
        return [
            f"--users: {user} is {row.role} of tenant {row.tenant or 'none'}, not of {tenant}, and stays so; "
            f"`fairlead user add {user} --tenant {tenant}` changes that"
            for user, tenant in users.items()
            if (row := known.get(user)) is not None and (row.tenant, row.role) != (tenant, "user")
        ]

    def tokens_delivered(self, users: Iterable[str]) -> None:
        """Note that the first tokens of these users are where their owner finds them. If this cannot be
        written down, the next start makes new ones."""

        def note(transaction: Transaction) -> None:
            for user in users:
                if user in FIRST_USERS:
                    transaction.set_meta("tokens", "told")
                else:
                    transaction.set_meta(_waits(user), "")

        with contextlib.suppress(StoreError):
            self._change(note)

    def add(self, user: str, tenant: str, role: Role, lasts_s: float | None) -> str:
        """Add a user, or give a known one another token. Returns the token, which is not stored. lasts_s:
        seconds for which it is good, None = until there is another."""
        check_name("user", user)
        if tenant or role == "user":
            check_tenant(tenant)
        if role not in ("admin", "user", "agent"):
            raise ConfigError(f"role: must be admin, user or agent, got {role!r}")
        if user in FIRST_USERS and role != user:
            raise ConfigError(f"user {user!r}: always has the role {user}, got {role!r}")
        if lasts_s is not None and not 0 < lasts_s <= MAX_TOKEN_S:
            raise ConfigError(
                f"lasts_s: must be above 0 and at most {MAX_TOKEN_S:g}, got {lasts_s}"
            )
        return self._put(user, tenant, role, None if lasts_s is None else time.time() + lasts_s)

    def remove(self, user: str) -> None:
        """Refuse a user's token from now on; their jobs stay. Raises NotFoundError."""
        if user not in {row.user for row in self._store.users()}:
            raise NotFoundError(f"user {user!r}: there is none")
        self._change_users(lambda t: t.delete_user(user))

    def views(self) -> list[UserView]:
        """Return all users."""
        return [
            UserView(row.user, row.tenant, row.role, row.expires_s) for row in self._store.users()
        ]

    def _put(
        self,
        user: str,
        tenant: str,
        role: Role,
        expires_s: float | None = None,
        waits: bool = False,
    ) -> str:
        """Return the new token of a user. waits: until it is known to have been delivered, the next start
        makes another."""
        token = make_token()
        row = UserRow(
            user=user, tenant=tenant, role=role, token_hash=hash_token(token), expires_s=expires_s
        )

        def write(transaction: Transaction) -> None:
            transaction.put_user(row)
            if waits:
                transaction.set_meta(_waits(user), "waits")

        self._change_users(write)
        return token

    def _change_users(self, change: Callable[[Transaction], None]) -> None:
        self._change(change, late=self._tell)
        self._tell()

    def _tell(self) -> None:
        self.changed(self._store.users())

    def _change(
        self, change: Callable[[Transaction], None], late: Callable[[], None] = lambda: None
    ) -> None:
        """Have something written. late: called where that comes about after it was refused."""
        future = self._engine.call(lambda: self._engine.state.write(change))
        try:
            self._await_durable(future, future.cancel)
        except StoreError:  # it may still come into force, and the front must hear of it then
            future.add_done_callback(lambda _: late())
            raise
