"""A part of a plan: settings that belong together, each declared once, with its type, default and what it must be.

What a setting must be is the description of its type (``Annotated[int, Meta(ge=1, description="…")]``). Sentences about
faults, the page of all settings and the tests read it from there.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from foldaway.errors import PlanError, did_you_mean

Seconds = Annotated[float, Meta(ge=1, le=10**7, description="a number of seconds from 1 to 10^7")]
Count = Annotated[int, Meta(ge=1, le=10**9, description="a whole number from 1 to 10^9")]


class Setting(NamedTuple):
    """One setting as it is declared.

    Attributes:
        name: Its name in sentences, with that of its part: ``privacy.cohort``.
        kind: Its type, with bounds.
        plain: Its type, without.
        default: The value if it is left out; `msgspec.NODEFAULT` if it cannot be.
        must_be: The rest of a sentence that begins "it must be".
        part: The part that the setting is, if it is one.
        each: The part that each of its items is, if it is a list of parts.
    """

    name: str
    kind: Any
    plain: Any
    default: Any
    must_be: str
    part: type[Part] | None
    each: type[Part] | None = None


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every part does: bring its settings to their types, and say what is wrong with them.

    Attributes:
        TABLE: The table in which the settings are written.
        SHORT: The setting that may be written in the place of the table.
        LISTED: Whether a plan has a list of them.
    """

    TABLE: ClassVar[str] = ""
    SHORT: ClassVar[str] = ""
    LISTED: ClassVar[bool] = False

    def __post_init__(self) -> None:
        faults, typed = [], True
        for name, setting in settings_of(type(self)).items():
            try:
                value = _read(getattr(self, name), setting)
            except PlanError as error:
                typed = False
                faults.append(str(error))
                continue
            except (msgspec.ValidationError, UnicodeEncodeError):  # half a character where a word should be
                faults.append(f"`{setting.name}` must be {setting.must_be}.")
                typed = typed and _has_type(getattr(self, name), setting)
                continue
            self.put(name, value)
        if typed:  # the rules rely on every setting having its type
            self.complete()
            faults += self.faults()
        if faults:
            raise PlanError("\n".join(faults))

    def put(self, name: str, value: Any) -> None:
        """Give a setting its value, while the part is made."""
        default = settings_of(type(self))[name].default
        # msgspec leaves out of the canonical form what is the default, not what equals it.
        msgspec.structs.force_setattr(self, name, default if value == default else value)

    def complete(self) -> None:
        """Write out what is written in short and follows from other settings."""

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together, one sentence for each fault."""
        return iter(())

    @classmethod
    def table(cls) -> str:
        """Its table as a file has it."""
        return f"[[{cls.TABLE}]]" if cls.LISTED else f"[{cls.TABLE}]"

    def apart(self) -> tuple[Part, ...]:
        """The parts that it stands for in a list of parts; itself, unless it is short for several."""
        return (self,)

    @classmethod
    def of(cls, written: Any) -> Self:
        """The part that was written: itself, a mapping of its settings, or its short form.

        Raises:
            PlanError: A setting is missing, unknown or wrong.

        Example:
            >>> from foldaway.plan import Bootstrap
            >>> Bootstrap.of(1000) == Bootstrap.of({"replicates": 1000}) == Bootstrap(1000)
            True
        """
        if isinstance(written, cls):
            return written
        if not isinstance(written, Mapping):
            if not cls.SHORT:
                raise PlanError(f"`{cls.TABLE}` must be {_must_be(cls | None)}.")
            written = {cls.SHORT: written}
        if faults := list(misnamed(cls, written)):
            raise PlanError("\n".join(faults))
        return cls(**written)


@cache
def settings_of(part: type[Part]) -> Mapping[str, Setting]:
    """Every setting of a part, in declared order."""
    kinds, plain = get_type_hints(part, include_extras=True), get_type_hints(part)
    prefix = f"{part.TABLE}." if part.TABLE else ""
    settings = {}
    for field in msgspec.structs.fields(part):
        kind = kinds[field.name]
        described = _must_be(kind), _part_in(kind), _part_in_list(kind)
        settings[field.name] = Setting(prefix + field.name, kind, plain[field.name], field.default, *described)
    return types.MappingProxyType(settings)


def misnamed(part: type[Part], written: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each setting of the part that is unknown, in the wrong place, or missing."""
    settings = settings_of(part)
    for name in written:
        if name in settings:
            continue
        if where := home_of(name):
            yield f"`{name}` belongs {where}."
        else:
            of = part.table() if part.TABLE else "a plan"
            yield f"{name!r} is not a setting of {of}{did_you_mean(str(name), settings)}"
    for name, setting in settings.items():
        if setting.default is msgspec.NODEFAULT and name not in written:
            yield f"`{setting.name}` is missing."


def home_of(name: str) -> str:
    """Where a setting belongs, for the rest of a sentence; empty if there is no such setting."""
    homes = sorted((part for part in _parts(Part) if name in settings_of(part)), key=lambda part: part.TABLE)
    if not homes:
        return ""
    if not homes[0].TABLE:  # the plan itself
        return "at the top of the plan, before the first table"
    if len(tables := dict.fromkeys(home.TABLE for home in homes)) == 1:
        return f"in {homes[0].table()}"
    places = _listed([f"`{table}`" for table in tables], "or")
    return f'to the column that it is of, in {places}: {{column = "…", {name} = …}}'


def _parts(of: type[Part]) -> Iterator[type[Part]]:
    for part in of.__subclasses__():
        yield part
        yield from _parts(part)


class Fixed(dict[str, Any]):
    """A dict that cannot change, so that a plan cannot either."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> None:
        raise TypeError("a plan cannot be changed: create a new plan")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse  # type: ignore[assignment]

    def written(self) -> Mapping[str, Any]:
        """What a person would write for it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Fixed, (dict(self),)  # pickle and copy would otherwise set the items one by one


def _read(value: Any, setting: Setting) -> Any:
    """The value in the type it is declared with, as one that cannot change."""
    if setting.each is not None:
        return _read_each(_plain(value), setting.each, setting)
    if setting.part is None:
        return _fixed(msgspec.convert(_plain(value), setting.kind))
    return value if value is None and setting.default is None else setting.part.of(value)


def _read_each(written: Any, part: type[Part], setting: Setting) -> tuple[Part, ...]:
    """A list of parts; the faults of all of them are told."""
    parts: list[Part] = []
    faults = []
    if not isinstance(written, list):
        faults.append(f"`{setting.name}` must be {setting.must_be}.")
        written = []
    for each in written:
        try:
            parts += part.of(each).apart()
        except PlanError as error:
            faults.append(str(error))
        except msgspec.ValidationError:
            faults.append(f"`{setting.name}` must be {setting.must_be}.")
    if faults:
        raise PlanError("\n".join(dict.fromkeys(faults)))
    return tuple(parts)


def _has_type(value: Any, setting: Setting) -> bool:
    try:
        msgspec.convert(_plain(value), setting.plain)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return False
    return True


def _plain(value: Any) -> Any:
    """The value in Python's own types."""
    if hasattr(value, "tolist"):  # NumPy's numbers, texts and arrays
        return value.tolist()
    if isinstance(value, tuple) and hasattr(value, "written"):  # names, of which more is said than that
        return value.written()
    if isinstance(value, Mapping):
        items = value.written() if isinstance(value, Fixed) else value
        return {_plain(key): _plain(item) for key, item in items.items()}
    if isinstance(value, set | frozenset):
        raise msgspec.ValidationError("a set has no order")
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _fixed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Fixed({key: _fixed(item) for key, item in value.items()})
    return tuple(value) if isinstance(value, list) else value


def _part_in(kind: Any) -> type[Part] | None:
    """The part that is one of the types of a union."""
    return next((each for each in get_args(kind) if isinstance(each, type) and issubclass(each, Part)), None)


def _part_in_list(kind: Any) -> type[Part] | None:
    """The part that the items of a list may be."""
    items = get_args(get_args(kind)[0]) if get_origin(kind) is Annotated else ()
    return _part_in(items[0]) if items else None


def _must_be(kind: Any) -> str:
    """What a value of this type is, in words."""
    if (part := _part_in(kind)) is not None:
        short = f"{settings_of(part)[part.SHORT].must_be}, or " if part.SHORT else ""
        return f"{short}a table with {_listed([f'`{name}`' for name in settings_of(part)], 'and')}"
    if get_origin(kind) in (Union, types.UnionType):
        return _must_be(get_args(kind)[0])  # or nothing
    if get_origin(kind) is Annotated:
        return next(note.description for note in get_args(kind) if isinstance(note, Meta) and note.description)
    if get_origin(kind) is Literal:
        return _listed([f'"{value}"' for value in get_args(kind)], "or")
    return {str: "text", bool: "true or false"}[kind]


def _listed(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))
