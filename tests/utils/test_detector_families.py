"""Finds originals again among all models of the installed transformers, under other names."""

import ast
import os
import re
from pathlib import Path

import pytest

from tests.child_processes import run_module, user_environment
from utils.modular_detector.build import IndexBuilder
from utils.modular_detector.definitions import definitions_of, read_modeling_file
from utils.modular_detector.index import Entry, Index
from utils.modular_detector.index_files import read_index, write_index
from utils.modular_detector.matching import candidates, match_definitions
from utils.modular_detector.provenance import installed_models_root

FAMILIES = ("bert", "clip", "gemma3", "llama", "t5")
MODELS = installed_models_root()


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    builder = IndexBuilder(models_root=MODELS, index_dir=folder, embedder=None)
    write_index(builder.build(iter), folder)
    assert not builder.unreadable
    return folder


@pytest.fixture(scope="module")
def index(index_dir: Path) -> Index:
    found = read_index(index_dir)
    assert len(found) > 8000
    return found


def source_of(family: str) -> str:
    return (MODELS / family / f"modeling_{family}.py").read_text()


def camel_of(source: str) -> str:
    found = re.search(r"^class (\w+?)PreTrainedModel\(", source, re.MULTILINE)
    return found.group(1) if found else "(?!)"


def with_another_model_name(source: str, family: str) -> str:
    """Call the model Zorblax, in every name and string."""
    return source.replace(camel_of(source), "Zorblax").replace(family, "zorblax")


def with_all_names_changed(source: str, family: str) -> str:
    """Number classes and functions, and rename parameters and variables within functions."""
    del family
    tree = ast.parse(source)
    top = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            rename_within(function)
    text = ast.unparse(tree)
    for number, name in enumerate(top):
        text = re.sub(rf"\b{name}\b", f"Klass{number}x", text)
    return text


def rename_within(function: ast.FunctionDef) -> None:
    nodes = list(ast.walk(function))
    own = {n.arg for n in nodes if isinstance(n, ast.arg)}
    own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own = {name for name in own if name != "self" and not name.startswith("new_")}
    for node in nodes:
        if isinstance(node, ast.arg) and node.arg in own:
            node.arg = f"new_{node.arg}"
        elif isinstance(node, ast.Name) and node.id in own:
            node.id = f"new_{node.id}"


def plain_text(entry: Entry) -> str:
    """Write a definition without documentation, its model called "Model"; not by our own code."""
    source = (MODELS / entry.file).read_text()
    (node,) = [n for n in ast.parse(source).body if getattr(n, "name", "") == entry.name]
    for below in ast.walk(node):
        if isinstance(below, ast.ClassDef | ast.FunctionDef):
            kept = [d for d in below.decorator_list if "docstring" not in ast.unparse(d)]
            below.decorator_list = kept
            if ast.get_docstring(below) is not None:
                below.body = below.body[1:] or [ast.Pass()]
    text = re.sub(camel_of(source), "Model", ast.unparse(node))
    return text.replace(entry.model, "model")


@pytest.mark.parametrize("change", [with_another_model_name, with_all_names_changed])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_original_or_an_exact_twin_comes_first(tmp_path, index, family, change):
    source = source_of(family)
    changed = change(source, family)
    assert changed != source
    path = tmp_path / "modeling_zorblax.py"
    path.write_text(changed)
    originals = read_modeling_file(MODELS / family / f"modeling_{family}.py").nodes
    definitions = definitions_of(read_modeling_file(path))
    assert len(definitions) == len(originals)
    found = match_definitions(index, definitions, candidates(index, path, models_root=MODELS))
    file = f"{family}/modeling_{family}.py"
    firsts = {
        Entry(file=file, name=name): matches.jaccard[0]
        for name, matches in zip(originals, found, strict=True)
        if matches.definition.is_class
    }
    missed = [
        f"{original.name}: {first.entry}"
        for original, first in firsts.items()
        if first.entry != original and plain_text(first.entry) != plain_text(original)
    ]
    assert len(firsts) >= 8
    assert len(missed) <= 0.05 * len(firsts), missed


def test_a_query_takes_less_than_two_seconds(tmp_path, index_dir):
    path = tmp_path / "modeling_zorblax.py"
    path.write_text(with_another_model_name(source_of("bert"), "bert"))
    before = os.times()
    done = run_module(
        "utils.modular_model_detector",
        "--modeling-file",
        path,
        "--index-dir",
        index_dir,
        cwd=tmp_path,
        environment=user_environment(tmp_path),
    )
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert "modeling_zorblax.py::ZorblaxSelfOutput:\njaccard:\n" in done.stdout
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 2
