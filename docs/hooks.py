"""Lets pages link to files outside docs/: the site gets a copy of each such file, under source/.

Loaded by MkDocs (mkdocs.yml). A link is written as it is in the repository, relative to the file that has it; a
link to a folder means its README.md.
"""

import os
import pathlib
import re

from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# [text](target#anchor), ![text](target), and [label]: target
LINK = re.compile(r"(\]\(|^\[[^\]]+\]:[ ]+)([^)\s#]+)((?:#[^)\s]*)?)", re.MULTILINE)
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)

real_paths = {}  # [path in the site's sources] the file in the repository


def target_of(source, link):
    """The file in the repository that a link of `source` leads to; None for other links."""
    if re.match(r"[a-z][a-z0-9+.-]*:|/", link):
        return None
    path = pathlib.Path(os.path.normpath(source.parent / link))
    if path.is_dir():
        path = path / "README.md"
    return path if path.is_file() and ROOT in path.parents else None


def site_path(path):
    return path.relative_to(DOCS).as_posix() if DOCS in path.parents else "source/" + path.relative_to(ROOT).as_posix()


def prose_of(text):
    """The pieces of a page, in turn outside and inside of code."""
    return CODE.split(text)


def on_files(files, config):
    pages = [pathlib.Path(f.abs_src_path) for f in files.documentation_pages()]
    real_paths.update({f.src_uri: pathlib.Path(f.abs_src_path) for f in files.documentation_pages()})
    seen = set(pages)
    while pages:
        source = pages.pop()
        for piece in prose_of(source.read_text(encoding="utf-8"))[::2]:
            for link in LINK.finditer(piece):
                path = target_of(source, link[2])
                if path is None or path in seen or DOCS in path.parents:
                    continue
                seen.add(path)
                files.append(File.generated(config, site_path(path), abs_src_path=str(path),
                                            inclusion=InclusionLevel.NOT_IN_NAV))
                if path.suffix == ".md":
                    real_paths[site_path(path)] = path
                    pages.append(path)
    return files


def on_page_markdown(markdown, page, config, files):
    source = real_paths[page.file.src_uri]
    here = os.path.dirname(page.file.src_uri)

    def rewritten(link):
        path = target_of(source, link[2])
        if path is None:
            return link[0]
        return link[1] + os.path.relpath(site_path(path), here or ".").replace(os.sep, "/") + link[3]

    pieces = prose_of(markdown)
    pieces[::2] = [LINK.sub(rewritten, piece) for piece in pieces[::2]]
    return "".join(pieces)
