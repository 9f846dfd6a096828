"""The detector as a user runs it, on small folders of models."""

import datetime
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.child_processes import run_module, user_environment
from tests.utils.model_trees import (
    HEAD,
    MLP,
    NORM,
    ROTATE,
    make_models,
    modeling_source,
    three_models,
)
from utils.modular_detector.provenance import is_before


def detect(cwd: Path, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return run_module(
        "utils.modular_model_detector",
        *arguments,
        cwd=cwd,
        environment=user_environment(cwd / "cache", **more),
    )


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return three_models(tmp_path / "lib")


def build(tmp_path: Path, models: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return detect(
        tmp_path,
        "--build",
        "--models-root",
        models,
        "--index-dir",
        tmp_path / "index",
        "--embedding-model",
        "none",
        *more,
    )


def query(
    tmp_path: Path, models: Path, source: str, *more: str
) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "stuff.py"
    path.write_text(source)
    return detect(
        tmp_path,
        "--modeling-file",
        path,
        "--models-root",
        models,
        "--index-dir",
        tmp_path / "index",
        *more,
    )


def test_matches_are_printed_in_the_documented_form(tmp_path, models):
    built = build(tmp_path, models)
    assert built.returncode == 0
    assert built.stdout == (
        f"indexed 12 definitions of 3 files (transformers 9.9.1) in {tmp_path / 'index'}\n"
    )
    done = query(tmp_path, models, modeling_source("stuff", "Stuff", NORM, ROTATE))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        """
stuff.py::StuffRMSNorm:
jaccard:
    apple::AppleRMSNorm (1.0000)  identical
    berry_2::Berry2RMSNorm (1.0000)  identical
    cherry::CherryRMSNorm (1.0000)  constant 1e-05 -> 1e-06
"""
    )
    assert (
        """
stuff.py::rotate_half:
jaccard:
    apple::rotate_half (1.0000)  identical
    berry_2::rotate_half (1.0000)  identical
    cherry::rotate_half (1.0000)  identical
"""
        in done.stdout
    )


def test_the_suggestion_is_python_that_inherits_from_the_best_base(tmp_path, models):
    build(tmp_path, models)
    own = (
        "\nclass StuffOwn(nn.Module):\n    def forward(self, odd):\n        return odd.fold(odd)\n"
    )
    source = modeling_source("stuff", "Stuff", NORM, MLP, ROTATE, own, eps="1e-05", bias="")
    done = query(tmp_path, models, source)
    suggestion = done.stdout.partition("suggestion:\n\n")[2]
    compile(suggestion, "modular_stuff.py", "exec")
    assert suggestion == (
        "# modular_stuff.py: 3 of 4 definitions are close to cherry's\n"
        "from ..cherry.modeling_cherry import CherryMLP, CherryRMSNorm, rotate_half\n\n\n"
        "class StuffRMSNorm(CherryRMSNorm):\n    # identical\n    pass\n\n\n"
        "class StuffMLP(CherryMLP):\n    # identical\n    pass\n\n\n"
        + suggestion[suggestion.index("# StuffOwn") :]
    )
    assert suggestion.rpartition("\n# ")[2].startswith("StuffOwn is this model's own; closest: ")


@pytest.mark.parametrize(
    ("parts", "given", "remark"),
    [
        ((MLP,), {"bias": ""}, "bias=False missing in nn.Linear"),
        ((NORM,), {"eps": "1e-12"}, "constant 1e-06 -> 1e-12"),
        ((NORM.replace("variance + self", "variance - self"),), {}, "Add -> Sub"),
        ((NORM.replace("-1, keepdim", "-2, keepdim"),), {}, "constant 1 -> 2"),
        ((NORM.replace(", keepdim=True", ""),), {}, "keepdim=True missing in "),
        (
            (
                ROTATE.replace("    x1 = x[..., : x.shape[-1] // 2]\n", "").replace(
                    "// 2 :]", "// 2 :]\n    x1 = x[..., : x.shape[-1] // 2]"
                ),
            ),
            {},
            "order: x1 = x[..., :x.shape[-1] // 2] moved",
        ),
        ((ROTATE.replace("(-x2, x1)", "(x2, x1)"),), {}, "-x2 -> x2"),
        ((ROTATE.replace("    return", "    x1 = x1 + x2\n    return"),), {}, "x1 = x1 + x2 added"),
    ],
)
def test_what_differs_stands_next_to_a_high_score(tmp_path, parts, given, remark):
    models = make_models(tmp_path / "lib", {"apple": modeling_source("apple", "Apple")})
    build(tmp_path, models)
    done = query(tmp_path, models, modeling_source("stuff", "Stuff", *parts, **given))
    first = done.stdout.split("jaccard:\n    ")[1].partition("\n")[0]
    assert remark in first.partition(")  ")[2]


def test_code_that_is_the_same_but_for_names_comes_first(tmp_path, models):
    build(tmp_path, models)
    source = """
        from torch import nn
        import torch
        def swap(value):
            a = value[..., : value.shape[-1] // 2]
            b = value[..., value.shape[-1] // 2 :]
            return torch.cat((-b, a), dim=-1)
    """
    done = query(tmp_path, models, "if True:\n" + source)
    assert "    apple::rotate_half (1.0000)  identical but for names\n" in done.stdout


def test_strings_with_hashes_survive(tmp_path):
    text = 'def label(x):\n    return x.join("a # b").lower_case(x)\n'
    models = make_models(tmp_path / "lib", {"apple": text, "berry": text.replace("lower", "upper")})
    build(tmp_path, models)
    done = query(tmp_path, models, text)
    lines = done.stdout.splitlines()
    assert lines[3] == "    apple::label (1.0000)  identical"
    assert lines[4] == "    berry::label (0.7778)"  # 1, were the rest of the line a comment


def test_a_file_never_matches_itself_but_its_copy_does(tmp_path, models):
    build(tmp_path, models)
    own = models / "apple" / "modeling_apple.py"
    arguments = ["--models-root", models, "--index-dir", tmp_path / "index", "--modeling-file"]
    done = detect(tmp_path, *arguments, own)
    assert "apple::" not in done.stdout
    assert "    berry_2::rotate_half (1.0000)  identical\n" in done.stdout
    copied = shutil.copy(own, tmp_path / "modeling_copy.py")
    assert (
        "    apple::AppleRMSNorm (1.0000)  identical\n"
        in detect(tmp_path, *arguments, copied).stdout
    )


def test_an_index_smaller_than_five_shows_all_it_has(tmp_path):
    models = make_models(tmp_path / "lib", {"apple": ROTATE})
    build(tmp_path, models)
    done = query(tmp_path, models, ROTATE)
    assert done.stdout.count("(1.0000)") == 1
    assert "    apple::rotate_half (1.0000)  identical\n" in done.stdout


def test_an_exact_twin_of_the_same_name_in_an_index_of_ten(tmp_path):
    others = "".join(f"\ndef other_{n}(a):\n    return a.thing_{n}({n})\n" for n in range(9))
    models = make_models(tmp_path / "lib", {"apple": ROTATE + others})
    assert "indexed 10 definitions" in build(tmp_path, models).stdout
    lines = query(tmp_path, models, ROTATE).stdout.splitlines()
    assert lines[3] == "    apple::rotate_half (1.0000)  identical"
    assert len([line for line in lines if line.startswith("    apple::")]) == 5


def test_five_are_shown_of_many(tmp_path):
    files = {f"m{number}": ROTATE for number in range(9)}
    models = make_models(tmp_path / "lib", files)
    build(tmp_path, models)
    assert query(tmp_path, models, ROTATE).stdout.count("rotate_half (1.0000)") == 5


@pytest.mark.parametrize(
    ("day", "counted"),
    [("2021-01-01", ["apple"]), ("2020-12-31", []), ("2024-01-01", ["apple", "berry_2"])],
)
def test_only_models_that_came_before_a_day_count(tmp_path, models, day, counted):
    build(tmp_path, models)
    done = query(tmp_path, models, ROTATE, "--date-before", day)
    found = [line.split("::")[0].strip() for line in done.stdout.splitlines() if "(1.0000)" in line]
    assert found == counted


def test_the_day_on_a_models_page_goes_before_its_copyright(tmp_path):
    models = three_models(tmp_path / "src" / "transformers")
    pages = tmp_path / "docs" / "source" / "en" / "model_doc"
    pages.mkdir(parents=True)
    (pages / "berry-2.md").write_text(
        "*This model was added to Hugging Face Transformers on 2019-05-06.*\n"
    )
    build(tmp_path, models)
    files = json.loads((tmp_path / "index" / "index.json").read_text())["files"]
    assert [file["date"] for file in files.values()] == ["2020", "2019-05-06", "2024"]
    assert is_before("2019-05-06", datetime.date(2019, 5, 7))
    assert not is_before("2019-05-06", datetime.date(2019, 5, 6))
    assert not is_before("", datetime.date(2030, 1, 1))


def test_a_stale_index_is_refused(tmp_path, models):
    build(tmp_path, models)
    (models.parent / "__init__.py").write_text('__version__ = "9.9.2"\n')
    done = query(tmp_path, models, ROTATE)
    assert done.returncode == 2
    assert done.stdout == ""
    assert (
        "error: the index is stale: it is of transformers 9.9.1, and the models here are of "
        "transformers 9.9.2; build it anew with --build" in done.stderr
    )


def test_an_index_of_another_commit_is_refused(tmp_path, models):
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments],
            cwd=tmp_path / "lib",
            check=True,
            capture_output=True,
        )

    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    assert ", commit " in build(tmp_path, models).stdout
    assert query(tmp_path, models, ROTATE).returncode == 0
    (models / "apple" / "more.txt").write_text("x")
    git("add", ".")
    git("commit", "-m", "two")
    done = query(tmp_path, models, ROTATE)
    assert done.returncode == 2
    assert "the index is stale" in done.stderr


def test_a_file_that_changed_is_named_and_not_compared(tmp_path, models):
    build(tmp_path, models)
    path = models / "cherry" / "modeling_cherry.py"
    path.write_text(path.read_text().replace("1e-05", "1e-04"))
    done = query(tmp_path, models, modeling_source("stuff", "Stuff", NORM))
    assert "    cherry::CherryRMSNorm (1.0000)\n" in done.stdout
    assert "warning: changed since the index was built: cherry/modeling_cherry.py" in done.stderr


def test_a_stopped_build_goes_on_and_what_did_not_change_is_kept(tmp_path, models):
    build(tmp_path, models)
    parts = tmp_path / "index" / "parts"
    before = {path.name: path.stat().st_mtime_ns for path in parts.iterdir()}
    assert len(before) == 3
    for path in (tmp_path / "index").glob("*.json"):  # as if it was stopped
        path.unlink()
    (parts / "apple__modeling_apple.py.safetensors").write_bytes(b"half")
    (models / "cherry" / "modeling_cherry.py").write_text(ROTATE)
    done = build(tmp_path, models)
    assert "indexed 9 definitions of 3 files" in done.stdout
    after = {path.name: path.stat().st_mtime_ns for path in parts.iterdir()}
    kept = [name for name in before if before[name] == after[name]]
    assert kept == ["berry_2__modeling_berry_2.py.safetensors"]


def test_the_build_shows_a_bar(tmp_path, models):
    assert "building the index: 100%" in build(tmp_path, models).stderr


def test_files_that_cannot_be_read_are_named_skipped_and_counted(tmp_path, models):
    (models / "apple" / "modeling_apple.py").write_text("class (:\n")
    done = build(tmp_path, models)
    assert done.returncode == 2
    assert "modeling_apple.py:1: invalid syntax" in done.stderr
    assert "error: 1 files could not be read; the rest is in the index" in done.stderr
    assert query(tmp_path, models, ROTATE).stdout.count("(1.0000)") == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [("class (:\n", "stuff.py:1: invalid syntax"), ("x = 1\n", "has no class and no function")],
)
def test_a_modeling_file_that_cannot_be_used_is_refused(tmp_path, models, source, message):
    build(tmp_path, models)
    done = query(tmp_path, models, source)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_missing_modeling_file_is_refused(tmp_path, models):
    done = detect(tmp_path, "--models-root", models, "--modeling-file", tmp_path / "no.py")
    assert done.returncode == 2
    assert "no.py: No such file or directory" in done.stderr


def test_without_index_and_network_it_says_so(tmp_path, models):
    done = query(tmp_path, models, ROTATE)
    assert done.returncode == 2
    assert f"no index in {tmp_path / 'index'}; asking the Hub" in done.stderr
    assert (
        "error: no index could be fetched from the data set "
        "hf-internal-testing/transformers_code_embeddings" in done.stderr
    )
    assert "--build" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("index.json", "{", "is no JSON"),
        ("index.json", '{"format": 0}', "is of format 0, expected 1"),
        ("index.json", '{"format": 1}', "is damaged"),
        ("code_index_map.json", '{"0": "a/modeling_a.py:A"}', "of different builds"),
        ("code_index_tokens.safetensors", "x", "cannot read"),
    ],
)
def test_a_damaged_index_is_refused(tmp_path, models, name, damage, message):
    build(tmp_path, models)
    (tmp_path / "index" / name).write_text(damage)
    done = query(tmp_path, models, ROTATE)
    assert done.returncode == 2
    assert message in done.stderr
    assert "build it anew with --build" in done.stderr


def test_files_of_two_builds_are_not_mixed(tmp_path, models):
    build(tmp_path, models)
    kept = (tmp_path / "index" / "code_index_tokens.safetensors").read_bytes()
    build(tmp_path, models)
    (tmp_path / "index" / "code_index_tokens.safetensors").write_bytes(kept)
    assert "of different builds" in query(tmp_path, models, ROTATE).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--push-new-index", "--modeling-file", "x.py"], "--push-new-index needs --build"),
        ([], "nothing to do: give --modeling-file, --build, or both"),
        (["--build", "--models-root", "nowhere"], "no modeling_*.py below nowhere"),
        (["--modeling-file", "x.py", "--date-before", "soon"], "does not match the format"),
    ],
)
def test_wrong_options_are_refused(tmp_path, arguments, message):
    done = detect(tmp_path, *arguments, "--embedding-model", "none")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_embeddings_that_the_index_lacks_are_not_asked_for(tmp_path, models):
    build(tmp_path, models)
    done = query(tmp_path, models, ROTATE, "--embedding-model", "any")
    assert done.returncode == 2
    assert "the index holds no embeddings" in done.stderr


def test_a_head_alone_has_nothing_to_match(tmp_path, models):
    build(tmp_path, models)
    done = query(tmp_path, models, HEAD.format(snake="s", camel="S", year=1))
    assert done.returncode == 2
