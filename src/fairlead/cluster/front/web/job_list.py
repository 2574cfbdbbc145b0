"""The page of all jobs: searched, filtered, sorted and paged by the server, so that it needs no script."""

from collections.abc import Iterable

from fairlead.analysis.report.markup import Html, join, tag
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.web import tables
from fairlead.cluster.front.web.layout import FAST, Page, Section, note, old_state
from fairlead.cluster.front.web.lists import one_of, pages, text_field
from fairlead.cluster.front.web.markup import address, link
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.protocol.job_search import (
    JOB_ORDERS,
    LIST_STATES,
    MAX_SEARCH,
    FoundJobs,
    JobQuery,
)
from fairlead.cluster.store.rows import OPEN_STATES
from fairlead.errors import InputError

JOBS = 50  # a page


def jobs_page(facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/jobs``."""
    query = job_query(ask)
    sections = [_filter(query, ask)] if ask.wants("") else []
    if ask.wants(FAST):
        sections.append(job_list(facade.find_jobs(ask.caller, query), query, _is_mine(ask)))
    return Page("Jobs", "Jobs of the cluster", sections, here="/jobs")


def job_query(ask: PageRequest) -> JobQuery:
    """Return the query in the address of a request. Raises InputError for what is no query."""
    words = ask.query.get("search", "").strip()
    if len(words) > MAX_SEARCH:
        raise InputError(f"search: at most {MAX_SEARCH} characters, got {len(words):,}")
    sort = ask.query.get("sort", "")
    order = next((name for name in JOB_ORDERS if name == sort.removeprefix("-")), None)
    if sort and order is None:
        raise InputError(f"sort: {sort[:40]!r} is not one of {', '.join(JOB_ORDERS)}")
    return JobQuery(
        search=words,
        state=one_of("state", ask.query.get("state", ""), LIST_STATES),
        tenant=ask.query.get("tenant", ""),
        user=ask.caller.user if _is_mine(ask) else "",
        array=None if ask.number("array", -1) < 0 else ask.number("array", -1),
        sort=order or "id",
        descending=sort.startswith("-") or not sort,  # the newest first
        offset=max(ask.number("from", 0), 0),
        limit=JOBS,
    )


def _is_mine(ask: PageRequest) -> bool:
    return ask.query.get("mine", "") == "1"


def _filter(query: JobQuery, ask: PageRequest) -> Section:
    """Return the form of the search. It stays as it is while the list below is fetched again."""
    mine = tag("input", type="checkbox", name="mine", value="1", checked=_is_mine(ask))
    words = tag(
        "input",
        type="search",
        name="search",
        value=query.search,
        maxlength=MAX_SEARCH,
        autocomplete="off",
        spellcheck="false",
        aria_describedby="search-in",
    )
    fields = [
        tag("label", tag("span", "Search"), words, class_="search"),
        text_field("tenant", "Tenant", query.tenant) if ask.caller.role == "admin" else None,
        text_field("array", "Array", "" if query.array is None else str(query.array)),
        tag("label", mine, " only mine", class_="check"),
        tag("input", type="hidden", name="state", value=query.state),
        tag("input", type="hidden", name="sort", value=ask.query.get("sort", "")),
        tag("button", "Search", type="submit"),
    ]
    about = note("In id, name, user, tenant, family, type, node and reason; all words must occur.")
    form = tag("form", *fields, method="get", action="/jobs", class_="filter", data_filter=True)
    told = tag("p", "", id="told", role="status", class_="visually-hidden")
    body = join(form, tag("div", about, id="search-in"), told)
    return Section("filter", "Jobs", body, tools=link("/submit", "Submit a job", class_="button"))


def job_list(found: FoundJobs, query: JobQuery, mine: bool) -> Section:
    """The jobs that were found, with counts by state and links to other orders and pages."""
    first, last = query.offset + 1, query.offset + len(found.jobs)
    shown = f"{first:,} to {last:,} of {found.found:,}" if found.jobs else f"0 of {found.found:,}"
    older = "Of jobs that have ended only the newest are searched." if found.is_cut else None
    where = _where(query, mine)
    table = tables.jobs_table(
        found.jobs,
        none="No job fits this filter.",
        order=tables.TableOrder(
            query.sort, query.descending, lambda sort: address("/jobs", **where, sort=sort)
        ),
    )
    body = join(
        old_state(job.age_s for job in found.jobs),
        tag("nav", *_states(found, query, where), aria_label="States", class_="chips"),
        tag("p", shown, class_="note", data_told=True),
        table,
        note(older) if older else None,
        pages(list(_turns(found, query, where))),
    )
    return Section("list", "Jobs found", body, FAST)


def _where(query: JobQuery, mine: bool) -> dict[str, object]:
    """Return the parameters that links to other orders and pages of the same jobs have in common."""
    return {
        "search": query.search,
        "state": query.state,
        "tenant": query.tenant,
        "mine": 1 if mine else "",
        "array": "" if query.array is None else query.array,
    }


def _sort_word(query: JobQuery) -> str:
    word = ("-" if query.descending else "") + query.sort
    return "" if word == "-id" else word


def _states(found: FoundJobs, query: JobQuery, where: dict[str, object]) -> Iterable[Html]:
    """A link to each state that there is among the jobs that fit, with their number."""
    counts = {
        "": sum(found.states.values()),
        "open": sum(found.states.get(state, 0) for state in OPEN_STATES),
    }
    counts |= {state: found.states.get(state, 0) for state in LIST_STATES if state != "open"}
    for state, several in counts.items():
        chosen = state == query.state
        if several or chosen or not state:
            href = address("/jobs", **(where | {"state": state}), sort=_sort_word(query))
            number = tag("b", f"{several:,}")
            current = "true" if chosen else None
            id_ = f"state-{state or 'all'}"
            yield link(
                href, f"{state or 'all'} ", number, id=id_, data_list=True, aria_current=current
            )


def _turns(found: FoundJobs, query: JobQuery, where: dict[str, object]) -> Iterable[Html]:
    for start, words, rel in (
        (query.offset - JOBS, "Previous page", "prev"),
        (query.offset + JOBS, "Next page", "next"),
    ):
        if -JOBS < start < found.found:
            further = {"sort": _sort_word(query), "from": max(start, 0) or ""}
            href = address("/jobs", **where, **further)
            yield link(href, words, rel=rel, id=f"page-{rel}", data_list=True)
