"""Files as lines of bounded length, gzip or not, with one sentence for whatever is wrong with them.

Nothing here knows what a trace or a throughput table is: the error class is a parameter.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from fairlead.errors import InputError
from fairlead.model.argument_checks import brief_repr
from fairlead.model.near_names import did_you_mean, nearest_name

MAX_LINE = 1 << 20  # bytes; a longer line is an error and is never loaded
MAX_DOCUMENT = 1 << 27  # bytes of a JSON document, unpacked: it has to be held as a whole
GZIP_MAGIC = b"\x1f\x8b"


class Source:
    """A file that can be opened, looked into and read; every fault raises ``error``."""

    def __init__(self, path: str | Path, error: type[InputError]) -> None:
        self.path = Path(path)
        self.error = error

    def fault(self, line: int | None, message: str) -> InputError:
        """The error to raise: ``FILE:LINE: message``."""
        where = str(self.path) if line is None else f"{self.path}:{line}"
        return self.error(f"{where}: {message}")

    def too_long(self, line: int) -> InputError:
        """The error for a line that is not loaded because of its length."""
        return self.fault(line, f"the line is longer than {MAX_LINE} bytes")

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The file's bytes, unpacked if it is gzip; what goes wrong while reading is one sentence."""
        try:
            with self.path.open("rb") as raw:
                compressed = raw.read(2) == GZIP_MAGIC
                raw.seek(0)
                if compressed:
                    with gzip.GzipFile(fileobj=raw) as unpacked:
                        yield unpacked  # type: ignore[misc]
                else:
                    yield raw
        except FileNotFoundError:
            raise self.fault(None, "no such file") from None
        except IsADirectoryError:
            raise self.fault(None, "is a directory, expected a file") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
            raise self.fault(None, f"the gzip data is damaged or cut off ({problem})") from None
        except OSError as problem:
            raise self.fault(None, f"cannot be read ({problem.strerror or problem})") from None

    def head(self) -> tuple[int, bytes]:
        """(number, text) of the first line that is neither empty nor a comment; of a line that is too
        long, as much as a line may hold."""
        number = 0
        with self.open() as handle:
            while line := handle.readline(MAX_LINE + 1):
                number += 1
                text = line.strip()
                if len(line) > MAX_LINE or (text and not text.startswith(b"#")):
                    return number, line
        raise self.fault(None, "is empty")

    def lines(self) -> Iterator[tuple[int, str]]:
        """(line number from 1, text without its end), empty lines included."""
        with self.open() as handle:
            number = 0
            while raw := handle.readline(MAX_LINE + 1):
                number += 1
                if len(raw) > MAX_LINE:
                    raise self.too_long(number)
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as problem:
                    byte = raw[problem.start]
                    raise self.fault(
                        number, f"not UTF-8 text: byte 0x{byte:02x} at column {problem.start + 1}"
                    ) from None
                yield number, text.rstrip("\r\n")

    def document(self) -> bytes:
        """The whole file, for JSON."""
        with self.open() as handle:
            data = handle.read(MAX_DOCUMENT + 1)
        if len(data) > MAX_DOCUMENT:
            raise self.fault(None, f"the JSON document is longer than {MAX_DOCUMENT} bytes")
        return data

    def json_fault(self, problem: Exception, data: bytes) -> InputError:
        """Return the error that msgspec found, with its line."""
        message = str(problem) or type(problem).__name__
        if isinstance(problem, msgspec.ValidationError):
            return self.fault(None, message)
        byte = re.search(r"\(byte (\d+)\)", message)
        line = data.count(b"\n", 0, int(byte[1])) + 1 if byte else None
        return self.fault(line, f"not valid JSON: {message.removeprefix('JSON is malformed: ')}")


def csv_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """(number of the line where it begins, cells) of the rows of a CSV file; empty lines and ``#`` comments
    are left out."""
    first = last = 0  # lines of the row that is read

    def texts() -> Iterator[str]:
        nonlocal first, last
        for number, text in source.lines():
            if text and not text.startswith("#"):
                first, last = first or number, number
                yield f"{text}\n"  # within quotes it belongs to the cell

    rows = csv.reader(texts(), strict=True)
    while True:
        first = last = 0
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as problem:
            raise source.fault(
                first, f"not valid CSV: {_csv_reason(problem, first, last)}"
            ) from None
        yield first, row


def _csv_reason(problem: csv.Error, first: int, last: int) -> str:
    """Return what is wrong with the row that begins and ends on these lines."""
    if str(problem) == "unexpected end of data":
        return 'a quote (") that begins in this row is never closed'
    if last > first:
        return f'a quote (") that begins in this row is open until line {last}: {problem}'
    return str(problem)


def header_names(head: bytes) -> set[str]:
    """Names of columns in the first bytes of a file, as if they were those of a CSV file."""
    return {name.strip() for name in head.decode("utf-8-sig", "replace").split(",")}


class HeaderColumns:
    """Positions of the columns of a CSV file, by name; the values in columns with other names are counted."""

    def __init__(
        self,
        source: Source,
        line: int,
        header: list[str],
        required: tuple[str, ...],
        optional: tuple[str, ...] = (),
    ) -> None:
        self.source = source
        self.width = len(header)
        names = [name.strip() for name in header]
        self.index = {name: i for i, name in enumerate(names)}
        used = {*required, *optional}
        self._unused = [(name, i) for i, name in enumerate(names) if name not in used]
        self._count = dict.fromkeys((name for name, _ in self._unused), 0)
        for name in names:
            if name and names.count(name) > 1:
                raise source.fault(line, f"column {name!r} appears twice")
        for name in required:
            if name not in self.index:
                raise source.fault(
                    line, f"{missing_column(name, self._count)}; it needs {','.join(required)}"
                )
        self._known = [name for name in used if name not in self.index]

    def check(self, line: int, row: list[str]) -> None:
        """Check that the row has as many cells as the header."""
        if len(row) != self.width:
            raise self.source.fault(line, f"expected {self.width} columns, got {len(row)}")
        for name, i in self._unused:
            if row[i].strip():
                self._count[name] += 1

    def notes(self) -> tuple[str, ...]:
        """A sentence with the columns that were not used, and how many values of them there were."""
        return unused_note(self._count, self._known)


def csv_cells(source: Source, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line and the cells in these columns, by name and without the spaces around them, of each row
    of a CSV file with a header. Other columns are not looked at."""
    rows = csv_rows(source)
    line, header = next(rows, (0, []))
    if not header:
        raise source.fault(None, "is empty")
    names = HeaderColumns(source, line, header, columns)
    for number, row in rows:
        names.check(number, row)
        yield number, {name: row[names.index[name]].strip() for name in columns}


def missing_column(name: str, unused: Iterable[str]) -> str:
    """That a column is missing, with the one of the unused columns that is probably meant to be it."""
    near = nearest_name(name, unused)
    return f"column {name!r} is missing" + (
        "" if near is None else f" (did you mean it by {near!r}?)"
    )


def unused_note(values: Mapping[str, int], lacking: Sequence[str] = ()) -> tuple[str, ...]:
    """One sentence with the columns of which values were not used, by name; () where there were none.
    lacking: names of columns that there might be, and are not."""
    named = [
        f"{brief_repr(name)} ({count:,} value{'' if count == 1 else 's'}{did_you_mean(name, lacking)})"
        for name, count in values.items()
        if count
    ]
    return (
        (f"not used: column{'' if len(named) == 1 else 's'} {', '.join(named)}",) if named else ()
    )
