"""Builds the site: `build/docs`, from the Markdown pages and the docstrings.

Copies the pages and writes the reference into `build/docs-source`, then runs
MkDocs on it. Fails on a broken link, and on a public name that has no
docstring or no place in the reference. Imports nothing of ours.
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import griffe
from griffe_keras import DESCRIBED
from griffe_keras import KerasDocstrings
from griffe_keras import public_names
from pymdownx.slugs import slugify

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent
BUILD = ROOT / "build"
PAGES = BUILD / "docs-source"

# Where Markdown pages are, with the headings of the menu.
GUIDES = {
    "Guide": "keras_attn",
    "Examples": "examples",
    "Serving": "serving",
    "Benchmarks": "tests/benchmarks",
    "Project": ".github",
}

# The reference: a page of each title for what is public in these modules.
REFERENCE = {
    "Layers": "layers placement",
    "Scores": "layers.parts layers.scores",
    "Alignments": "layers.alignments",
    "Decoder and cells": "layers.decoder layers.marginal layers.cells",
    "Losses and metrics": "training",
    "Callbacks and schedules": "training.callbacks training.schedules",
    "Averaging and distillation": "training.averaging training.distillation",
    "Checks": "diagnostics",
    "Text": "text training.batches",
    "Steppers": "incremental",
    "Decoding": "decoding",
    "Shortlists": "decoding.shortlist",
    "Output sets": "decoding.output_sets",
    "Terms": "decoding.phrases",
    "Translator": "decoding.translator",
    "Reranking": "reranking",
    "Export": "export",
    "Plots and pages": "viewing",
    "Migration": "models.tf_addons",
}

# What else stands there: names of subpackages, for who writes parts.
FURTHER = {
    "Layers": "layers.attention: Memory History",
    "Scores": "layers.parts: Part",
    "Alignments": "layers.alignments: Sample Window",
    "Decoder and cells": "layers.decoder: DecoderState Source",
    "Decoding": "decoding: Rule ForcedToken ForbiddenSequences "
    "Renormalized PairedTimestamps Written Run Step StepModel SearchInput "
    "LoopPolicy Hypotheses alignments_of append gather without_impossible "
    "Option Choice Integer Real PerSource",
    "Text": "text: Characters Whitespace",
    "Translator": "decoding.translator: Token",
    "Reranking": "reranking: Utility own_score",
    "Export": "export: export",
    "Checks": "diagnostics: Finding",
    "Steppers": "incremental: Encoded Ensemble",
    "Losses and metrics": "training.metrics: bleu chrf word_error_rate "
    "character_error_rate sequence_error_rate error_rates edit_distance "
    "alignment_links",
    "Averaging and distillation": "training.distillation: Record",
}

_DESCRIPTION = """::: {}
    options:
      members: false
      show_source: false
"""
# The clients have their calls from a class that is not public.
_INHERITED = """    options:
      inherited_members: true
"""
# At the top of a page of sources, which the site's search leaves out.
_NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
_FENCE = re.compile(r"^ *(```|~~~)")
_LINK = re.compile(
    r"""(?P<before>\]\(|^\[[^\]]+\]:\s+|(?:src|href)=")"""
    r"""(?P<path>[^)\s"#]*)(?P<anchor>\#[^)\s"]*)?"""
)
_PICTURE = re.compile(r"^!\[([^\]]+)\]\(([^)]+)\)", re.MULTILINE)
_LIST = re.compile(r"^([-*+]|\d+[.)]) ")


class Site:
    """The pages of the site, by the files of the repository."""

    def __init__(self):
        self.pages = {ROOT / "README.md": PAGES / "index.md"}
        self.guides = {}
        for title, folder in GUIDES.items():
            found = sorted((ROOT / folder).rglob("*.md"))
            found = [x for x in found if not _is_hidden(x, ROOT / folder)]
            found.sort(key=lambda x: (x.parent, x.name != "README.md"))
            if folder == ".github":
                found = [x for x in found if x.parent == ROOT / folder]
            self.guides[title] = _as_linked(found)
            for path in found:
                self.pages[path] = PAGES / _shown(path)
        self.errors = []
        self._sources = {}  # files and folders that pages link to

    def write(self):
        """Writes all pages, then those of the sources that they link to."""
        for path, page in self.pages.items():
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(self._on_site(path, page), encoding="utf-8")
        self._write_gallery()
        done = set()
        while left := self._sources.keys() - done:
            for path in sorted(left):
                self._write_source(path, self._sources[path])
                done.add(path)

    def menu(self) -> list:
        """Returns MkDocs' `nav` of these pages."""
        menu = [{"Home": "index.md"}, {"Gallery": "gallery.md"}]
        for title, paths in self.guides.items():
            pages = [str(_shown(path)) for path in paths]
            if pages:
                menu.append({title: pages})
        return menu

    def _write_gallery(self):
        """Shows all pictures of the pages, with links to where they stand."""
        gallery, seen = ["# Gallery", ""], set()
        for path, page in self.pages.items():
            text = path.read_text(encoding="utf-8")
            title = re.search(r"^# (.*)$", text, re.MULTILINE)[1]
            for match in _PICTURE.finditer(text):
                file = pathlib.Path(os.path.normpath(path.parent / match[2]))
                if file in seen:
                    continue
                seen.add(file)
                above = re.findall(r"^#+ (.*)$", text[: match.start()], re.M)
                anchor = slugify(case="lower")(above[-1], "-")
                place = f"{page.relative_to(PAGES)}#{anchor}"
                names = " / ".join(dict.fromkeys([title, above[-1]]))
                picture = os.path.relpath(self._source(file), PAGES)
                gallery += [
                    f"## {match[1]}",
                    "",
                    f"[![{match[1]}]({picture})]({place})",
                    "",
                    f"From [{names}]({place}).",
                    "",
                ]
        (PAGES / "gallery.md").write_text("\n".join(gallery), "utf-8")

    def _on_site(self, path, page):
        """A page's text, with links that work on the site."""
        lines, code = [], False
        before = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if _FENCE.match(line):
                code = not code
            if not code:
                line = _LINK.sub(
                    lambda x: x["before"] + self._target(x, path, page), line
                )
                # Unlike GitHub, Python-Markdown wants a line between them.
                is_list = _LIST.match(line)
                in_text = before.strip() and not before.startswith(" ")
                if is_list and in_text and not _LIST.match(before):
                    lines.append("")
            lines.append(line)
            before = line
        return "\n".join(lines) + "\n"

    def _target(self, match, path, page):
        target, anchor = match["path"], match["anchor"] or ""
        if not target or re.match(r"[a-z]+:", target):
            return target + anchor
        file = pathlib.Path(os.path.normpath(path.parent / target))
        if not file.exists() or not file.is_relative_to(ROOT):
            self.errors.append(f"{path.relative_to(ROOT)}: no file {target}")
            return target
        if file.is_dir() and file / "README.md" in self.pages:
            file /= "README.md"
        place = self.pages.get(file) or self._source(file)
        return os.path.relpath(place, page.parent) + anchor

    def _source(self, file):
        """Where a file that is no page stands on the site."""
        if file not in self._sources:
            name = str(_shown(file))
            if file.is_dir():
                name += "/index.md"
            elif _text_of(file) is not None:
                name += ".md"
            self._sources[file] = PAGES / "source" / name
        return self._sources[file]

    def _write_source(self, file, place):
        place.parent.mkdir(parents=True, exist_ok=True)
        text = None if file.is_dir() else _text_of(file)
        if file.is_dir():
            places = {
                x.name: os.path.relpath(self._place(x), place.parent)
                for x in sorted(file.iterdir())
                if _is_source(x)
            }
            body = "\n".join(f"- [`{x}`]({y})" for x, y in places.items())
        elif text is None:
            shutil.copy(file, place)
            return
        else:
            kind = {".py": "python", ".pyi": "python"}.get(file.suffix, "text")
            body = f"`````{kind}\n{text.rstrip()}\n`````"
        title = f"# `{file.relative_to(ROOT)}`"
        page = f"{_NOT_SEARCHED}{title}\n\n{body}\n"
        place.write_text(page, encoding="utf-8")

    def _place(self, file):
        if file.is_dir() and file / "README.md" in self.pages:
            file /= "README.md"
        return self.pages.get(file) or self._source(file)


class Reference:
    """The pages of the reference, from what is public."""

    def __init__(self):
        self._docstrings = KerasDocstrings()
        self._loader = griffe.GriffeLoader(
            search_paths=[ROOT, ROOT / "serving"],
            extensions=griffe.load_extensions(self._docstrings),
        )
        self.errors = self._docstrings.problems
        self._pages = {}  # title -> paths of names

    def collect(self):
        """Puts every public name on a page."""
        package = self._loader.load("keras_attn")
        page_of = {
            module: title
            for title, modules in REFERENCE.items()
            for module in modules.split()
        }
        self._pages = {title: [] for title in REFERENCE}
        for name in public_names(package):
            _, *module = package.members[name].target_path.split(".")
            rooms = [".".join(module[:n]) for n in range(len(module), 0, -1)]
            pages = [page_of[x] for x in rooms if x in page_of]
            if pages:
                self._add(pages[0], package, name)
            else:
                self.errors.append(
                    f"keras_attn.{name} has no place in the reference: give "
                    f"`{rooms[-1]}` a page in `REFERENCE`, .docs/build.py"
                )
        for title, names in FURTHER.items():
            module, names = names.split(": ")
            for name in names.split():
                self._add(title, package[module], name)
        client = self._loader.load("keras_attn_serving")
        self._pages["Client"] = []
        for name in public_names(client):
            self._add("Client", client, name)

    def write(self):
        """Writes the pages and their table of contents."""
        folder = PAGES / "reference"
        folder.mkdir(parents=True)
        contents, room = (
            ["# Reference", "", "By the folders of the package."],
            "",
        )
        for title, paths in self._pages.items():
            file = _file_of(title)
            if room != _room_of(title):
                room = _room_of(title)
                contents += ["", f"## `{room}`", ""]
            shown = _INHERITED if title == "Client" else ""
            body = [f"# {title}", "", *(f"::: {x}\n{shown}" for x in paths)]
            if (module := title.lower()) in DESCRIBED:
                body.append(_DESCRIPTION.format(f"keras_attn.{module}"))
            (folder / file).write_text("\n".join(body), encoding="utf-8")
            names = ", ".join(f"[`{x.split('.')[-1]}`][{x}]" for x in paths)
            contents.append(f"- [{title}]({file}): {names}")
        (folder / "index.md").write_text("\n".join(contents), encoding="utf-8")

    def menu(self) -> list:
        """Returns MkDocs' `nav` of these pages, by rooms of the package."""
        rooms = itertools.groupby(self._pages, _room_of)
        menus = [
            {room: [{x: f"reference/{_file_of(x)}"} for x in titles]}
            for room, titles in rooms
        ]
        return [{"Reference": ["reference/index.md", *menus]}]

    def _add(self, title, package, name):
        thing = package.members[name]
        if thing.is_alias:
            self._loader.resolve_aliases()
            thing = thing.final_target
        if thing.docstring is None:
            self.errors.append(f"{thing.path} is public and has no docstring")
        path = f"{package.path}.{name}"
        if path not in self._pages[title]:
            self._pages[title].append(path)


def _room_of(title):
    """The folder that has what stands on a page of the reference."""
    modules = REFERENCE.get(title)
    return modules.split()[0].split(".")[0] if modules else "keras_attn_serving"


def _file_of(title):
    return title.lower().replace(" ", "-") + ".md"


def _shown(path):
    """A file's path on the site, where nothing begins with a dot."""
    parts = path.relative_to(ROOT).parts
    return pathlib.Path(*(x.lstrip(".") for x in parts))


def _is_hidden(path, folder):
    parts = path.relative_to(folder).parts
    return any(x.startswith(".") or x in ("build", "runs") for x in parts)


def _is_source(path):
    return path.name not in ("__pycache__", "build", "runs") and not (
        path.name.startswith(".") or path.name.endswith(".egg-info")
    )


def _text_of(file):
    """A file's text, `None` where it is an image or the like."""
    if file.suffix in (".svg", ".png", ".gif", ".jpg", ".webp"):
        return None
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _as_linked(paths):
    """A README first, then pages as it links to them, then the others."""
    if not paths or paths[0].name != "README.md":
        return paths
    text = paths[0].read_text(encoding="utf-8")

    def place(path):
        name = os.path.relpath(path, paths[0].parent)
        found = text.find(f"]({name}")
        return found if found >= 0 else len(text)

    return [paths[0], *sorted(paths[1:], key=place)]


def main():
    """Builds the site, or says what is wrong and fails."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    site, reference = Site(), Reference()
    site.write()
    reference.collect()
    if errors := site.errors + reference.errors:
        sys.exit("\n".join(errors))
    reference.write()
    shutil.copy(HERE / "site.css", PAGES)
    menu = json.dumps(site.menu() + reference.menu(), indent=2)
    config = (HERE / "mkdocs.yml").read_text(encoding="utf-8")
    (BUILD / "mkdocs.yml").write_text(f"{config}\nnav: {menu}\n", "utf-8")
    # Its own `--quiet` would hide warnings from `--strict` too.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=BUILD,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    print("build/docs/index.html")


if __name__ == "__main__":
    main()
