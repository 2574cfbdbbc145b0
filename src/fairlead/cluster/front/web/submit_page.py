"""The page that submits a job: fields for what most jobs need, or the text of a job.toml."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.analysis.report.markup import Html, join, tag
from fairlead.cluster.front.api.errors import status_of
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.web.layout import Page, Section, note
from fairlead.cluster.front.web.markup import address
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import make_spec
from fairlead.errors import FairleadError, InputError
from fairlead.model.option_text import parse_options
from fairlead.model.toml import parse_sent_toml
from fairlead.model.toml_lines import with_line

JOB_TOML = "job.toml"  # what messages call a text that was pasted
_MAX_PARSED = (
    1 << 18
)  # characters, within a fifth of a second, to find the line that a message is about
_WHERE = "job"  # and what the fields, as the API does
_FIELD = re.compile(rf"{_WHERE}: (\w+)")  # the field that a message is about
_EXAMPLE = """command = "python train.py"
total_steps = 10000
scale_factor = 1
rates = { v100 = 10.0 }"""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of the form, which is the field of a job of the same name."""

    name: str
    title: str
    about: str = ""
    mode: str = ""  # keyboard of a phone
    required: bool = False


_FIELDS = (
    FormField("command", "Command", "as in a shell: python train.py --lr 0.1", required=True),
    FormField("total_steps", "Steps", "in all; without an iterator: seconds of work at rate 1",
              "numeric", required=True),
    FormField("name", "Name", "for people"),
    FormField("family", "Family", "model and batch size: its row of the throughput table"),
    FormField("scale_factor", "Devices", "one rank each; 1 if left empty", "numeric"),
    FormField("rates", "Steps per second", "by accelerator type: v100=10, k80=3"),
    FormField("slo_s", "Deadline", "seconds from now", "decimal"),
    FormField("weight", "Weight", "1 if left empty", "decimal"),
    FormField("cwd", "Working directory", "on the nodes, an absolute path"),
)  # fmt: skip


def submit_page(facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/submit``: the form; sent, the page of the job or what is wrong with it."""
    refused: FairleadError | None = None
    if ask.form:
        try:
            return _submitted(facade, ask)
        except FairleadError as problem:
            # without the frames that have all of the text: they hold it until garbage is looked for
            refused = problem.with_traceback(None)
            refused.__context__ = None
    sections = [_fields_form(ask, refused), _toml_form(ask, refused)]
    if refused is not None:
        words = tag("p", str(refused), role="alert", class_="banner bad")
        sections.insert(0, Section("problem", "Nothing was submitted", words))
    status = 200 if refused is None else status_of(refused)
    return Page("Submit", "Submit a job to the cluster", sections, status, here="/submit")


def _submitted(facade: Facade, ask: PageRequest) -> Page:
    specs = specs_of(ask.form)
    key = _key(ask.form)
    ids = facade.submit(ask.caller, specs, ask.form.get("tenant", "").strip(), key)
    target = f"/jobs/{ids[0]}" if len(ids) == 1 else address("/jobs", mine=1)
    return Page("Submitted", "", [], moved_to=target)


def _key(form: Mapping[str, str]) -> str:
    """By which the server knows a form that was sent twice; the same form with other fields is another."""
    text = repr(sorted(form.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def specs_of(form: Mapping[str, str]) -> list[JobSpec]:
    """The jobs of a form, checked as everywhere; InputError says which field is wrong."""
    text = form.get("toml")
    return [_from_fields(form)] if text is None else _from_toml(text.replace("\r\n", "\n"))


def _from_fields(form: Mapping[str, str]) -> JobSpec:
    given = {one.name: form.get(one.name, "").strip() for one in _FIELDS}
    content: dict[str, object] = {name: text for name, text in given.items() if text}
    for one in _FIELDS:
        if one.required and one.name not in content:
            raise InputError(f"{_WHERE}: {one.name}: is missing")
    if given["rates"]:
        content["rates"] = parse_options(
            given["rates"].split(","), f"{_WHERE}: rates", expected="v100=10", error=InputError
        )
    if (unmanaged := form.get("unmanaged", "")) not in ("", "1"):
        raise InputError(f"{_WHERE}: unmanaged: expected 1 or nothing, got {unmanaged[:40]!r}")
    content["unmanaged"] = unmanaged == "1"
    return make_spec(content, _WHERE, strict=False)


def _from_toml(text: str) -> list[JobSpec]:
    content = parse_sent_toml(text, JOB_TOML, InputError)
    try:
        return [make_spec(content, JOB_TOML)]
    except InputError as problem:
        raise InputError(with_line(str(problem), JOB_TOML, text, _MAX_PARSED)) from None


def _fields_form(ask: PageRequest, refused: FairleadError | None) -> Section:
    sent = "" if "toml" in ask.form else str(refused or "")
    found = _FIELD.match(sent)
    wrong = found[1] if found else ""
    fields = [
        _box(one, ask.form.get(one.name, ""), sent if one.name == wrong else "") for one in _FIELDS
    ]
    checked = ask.form.get("unmanaged") == "1"
    box = tag("input", type="checkbox", name="unmanaged", value="1", checked=checked)
    unmanaged = tag("label", box, " Any program: it has no iterator, and is stopped by SIGTERM",
                    class_="check")  # fmt: skip
    inner = (tag("div", *fields, class_="form-grid"), unmanaged, *_common(ask))
    form = tag("form", *inner, method="post", action="/submit", class_="ask")
    return Section("fields", "Submit a job", form)


def _toml_form(ask: PageRequest, refused: FairleadError | None) -> Section:
    text = ask.form.get("toml", "").replace("\r\n", "\n")
    sent = str(refused) if refused is not None and "toml" in ask.form else ""
    box = tag(
        "textarea",
        text,
        name="toml",
        spellcheck="false",
        placeholder=_EXAMPLE,
        required=True,
        **_state_of("toml", sent, "toml-about"),
    )
    label = tag("label", tag("span", "Fields of the job, as in a job.toml"), box)
    about = note("All fields may be given here, also those that the form above does not have.")
    inner = (label, _problem("toml", sent), tag("div", about, id="toml-about"), *_common(ask))
    form = tag("form", *inner, method="post", action="/submit", class_="ask")
    return Section("paste", "Or paste a job.toml", form)


def _common(ask: PageRequest) -> tuple[Html | None, ...]:
    """Return the elements that both forms end with. Each form shown is known by a number of its own."""
    tenant = None
    if ask.caller.role == "admin":
        box = tag("input", type="text", name="tenant", value=ask.form.get("tenant", ""),
                  autocomplete="off")  # fmt: skip
        tenant = tag("label", tag("span", "Tenant, if not your own"), box)
    number = ask.form.get("number", "") or secrets.token_urlsafe(12)
    hidden = tag("input", type="hidden", name="number", value=number)
    return tenant, hidden, tag("button", "Submit", type="submit", class_="main")


def _box(field: FormField, value: str, wrong: str) -> Html:
    """A line to write in, with what is wrong with it below it."""
    about = f"{field.name}-about" if field.about else ""
    title = join(field.title, tag("b", " (needed)") if field.required else None)
    box = tag(
        "input",
        type="text",
        name=field.name,
        value=value,
        autocomplete="off",
        spellcheck="false",
        inputmode=field.mode or None,
        required=field.required,
        **_state_of(field.name, wrong, about),
    )
    hint = tag("small", field.about, id=about) if field.about else None
    return tag("div", tag("label", tag("span", title), box), hint, _problem(field.name, wrong))


def _state_of(name: str, wrong: str, about: str) -> dict[str, str | bool | None]:
    """Attributes of a box: whether it is wrong, and what describes it."""
    described = " ".join(filter(None, [about, f"{name}-problem" if wrong else ""]))
    return {
        "aria_describedby": described or None,
        "aria_invalid": "true" if wrong else None,
        "autofocus": bool(wrong),
    }


def _problem(name: str, wrong: str) -> Html | None:
    return tag("p", wrong, id=f"{name}-problem", class_="problem") if wrong else None
