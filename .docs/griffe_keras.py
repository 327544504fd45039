"""Reads our packages as a user sees them, for the reference.

A Griffe extension: it sees the source and imports nothing.

- Sections of docstrings that Keras has and Griffe does not ("Call
  arguments", "Output shape", "Reference", ...) become titled blocks.
- A public name in backticks becomes a link to its place in the reference.
- The names that `keras_attn` imports on first use are there.
- A search has the arguments that its options make.
"""

import ast
import re

import griffe

PACKAGES = ("keras_attn", "keras_attn_serving")
DESCRIBED = ("decoding", "text", "export")  # whose own docstrings are shown

_OPTIONS = ("Choice", "Integer", "Option", "PerSource", "Real")  # of a search

# Sections that are lists of names, and what Griffe calls them.
_LISTS = {
    "Args": "Args: Arguments:",
    "Attributes": "Attributes: Attributes:",
    "Call arguments": "Other Args: Call arguments:",
    "Example": "Examples: Example:",
    "Examples": "Examples: Examples:",
    "Raises": "Raises: Raises:",
}
_PROSE = (
    "Output",
    "Output shape",
    "Reference",
    "References",
    "Returns",
    "Yields",
)
_SECTION = re.compile(rf"({'|'.join((*_LISTS, *_PROSE))}):$")
_TITLE = '<p><span class="doc-section-title">{}:</span></p>'
_CODE = re.compile(r"(?<![\[`])`([A-Za-z_][\w.]*)(\([^`]*\))?`(?!\])")


class KerasDocstrings(griffe.Extension):
    """Changes what was read of our packages.

    Attributes:
        problems: What is wrong with docstrings, a sentence each.
    """

    def __init__(self):
        super().__init__()
        self.problems = []

    def on_package(self, *, pkg, loader, **kwargs):
        if pkg.name not in PACKAGES:
            return
        for room in (pkg, *pkg.modules.values()):
            for name, module in lazy_names(room).items():
                path = f"{room.path}.{module}.{name}"
                room.set_member(name, griffe.Alias(name, path))
        own = {x: f"{pkg.name}.{x}" for x in public_names(pkg)}
        own |= {path: path for path in own.values()}
        own |= {f"{pkg.name}.{x}": f"{pkg.name}.{x}" for x in DESCRIBED}
        base = pkg.name == "keras_attn" and pkg["decoding.search.Search"]
        common = options_of(base) if base else {}
        for thing in everything_in(pkg):
            if thing.is_class and "__init__" not in thing.members:
                add_options(thing, base, common)
                add_fields(thing)
            if thing.docstring:
                self.problems += problems_of(thing)
                thing.docstring.value = rewritten(thing, own)


def public_names(package) -> list[str]:
    """Returns the names that a package offers but for modules, sorted."""
    if package.exports:
        named = {x for x in package.exports if isinstance(x, str)}
        named |= lazy_names(package).keys()
        return sorted(x for x in named if not package.members[x].is_module)
    found = set()
    for name, member in package.members.items():
        if member.is_alias and not name.startswith("_"):
            if member.target_path.startswith(f"{package.name}."):
                found.add(name)
    return sorted(map(str, found))


def lazy_names(package) -> dict[str, str]:
    """Returns the names imported on first use, with their modules."""
    table = package.members.get("_NEED_TENSORFLOW")
    return ast.literal_eval(str(table.value)) if table else {}


def everything_in(thing):
    """Yields a module or class and all that is defined in it."""
    yield thing
    for member in list(thing.members.values()):
        if not member.is_alias:
            yield from everything_in(member)


def problems_of(thing) -> list[str]:
    """Returns the sections of a docstring that are not indented."""
    lines = thing.docstring.value.splitlines()
    return [
        f"{thing.path}: the lines below `{line}` must be indented by four "
        "spaces"
        for line, *below in (lines[i:] for i in range(len(lines)))
        if _SECTION.match(line)
        and not next((x for x in below if x.strip()), "").startswith(" ")
    ]


def rewritten(thing, public) -> str:
    """Returns a docstring with sections that Griffe knows, and links.

    Args:
        thing: What has the docstring.
        public: The paths of public names.
    """
    lines = thing.docstring.value.expandtabs().splitlines()
    found, prose, code = [], False, False
    for line in lines:
        if line.startswith("```"):
            code = not code
        section = None if code else _SECTION.match(line)
        if section:
            title = section[1]
            prose = title in _PROSE
            found += [_TITLE.format(title), ""] if prose else [_LISTS[title]]
            continue
        if line and not line.startswith(" "):
            prose = False
        if prose:
            line = line.removeprefix("    ")
        if not code and not line.lstrip().startswith((">>>", "... ")):
            line = _CODE.sub(lambda x: _link(x, thing, public), line)
        found.append(line)
    return "\n".join(found)


def _link(match, thing, public):
    path = public.get(match[1])
    if path is None or path.endswith(f".{thing.name}"):
        return match[0]
    return f"[{match[0]}][{path}]"


def add_options(kind, base, common):
    """Gives a search the arguments that its options make.

    Args:
        kind: A class.
        base: The class of all searches.
        common: The options that all searches have.
    """
    own = options_of(kind)
    if not own and base not in kind.mro():
        return
    own |= {x: y for x, y in common.items() if x not in own}
    last = [x for x, (_, call) in own.items() if call.get("last")]
    own = {x: own[x] for x in [*(x for x in own if x not in last), *last]}
    self = griffe.Parameter("self", kind=griffe.ParameterKind.positional_only)
    parameters = [
        griffe.Parameter(
            name,
            annotation=attribute.annotation,
            kind=griffe.ParameterKind.positional_or_keyword,
            default=repr(call.get("default")),
        )
        for name, (attribute, call) in own.items()
    ]
    init = griffe.Function(
        "__init__", parameters=griffe.Parameters(self, *parameters), parent=kind
    )
    kind.set_member("__init__", init)
    if not re.search("^Args:", kind.docstring.value, re.M):
        docs = {x: call.get("doc", "") for x, (_, call) in own.items()}
        _add_section(kind, "Args", docs)
    for name in own:
        if name in kind.members:
            kind.del_member(name)


def add_fields(kind):
    """Gives a named tuple the comments on its fields as their docs."""
    bases = [str(x) for x in kind.bases]
    if "NamedTuple" not in bases or kind.docstring is None:
        return
    if re.search("^Attributes:", kind.docstring.value, re.M):
        return
    fields = {}
    for name, attribute in kind.members.items():
        if attribute.is_attribute and attribute.annotation is not None:
            comment = re.search(r"#\s*(.*)", "".join(attribute.lines))
            fields[name] = comment[1] if comment else ""
    if any(fields.values()):
        _add_section(kind, "Attributes", fields)


def _add_section(kind, title, items):
    listed = "\n".join(f"    {x}: {y}" for x, y in items.items())
    text = kind.docstring.value
    at = re.search(r"^(Args|Attributes|References?|Examples?):", text, re.M)
    before = text[: at.start()] if at else f"{text}\n\n"
    after = f"\n\n{text[at.start() :]}" if at else ""
    kind.docstring.value = f"{before}{title}:\n{listed}{after}"


def options_of(kind) -> dict:
    """Returns the options of a search: attribute and arguments by name."""
    found = {}
    for name, attribute in kind.members.items():
        if attribute.is_attribute and isinstance(
            attribute.value, griffe.ExprCall
        ):
            call = ast.parse(str(attribute.value), mode="eval").body
            if getattr(call.func, "id", None) in _OPTIONS:
                given = {x.arg: _literal(x.value) for x in call.keywords}
                found[name] = attribute, given
    return found


def _literal(node):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
