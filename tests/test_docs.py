"""Pages of the documentation: commands run, names exist, figures are those of the code."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import re
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest
import typer

import stepvad
from stepvad import Clip, Config, evaluation, explain, interop
from stepvad import sklearn as estimators
from stepvad.cli import app
from stepvad.evaluation import baselines, walkers
from stepvad.formats import FORMATS
from stepvad.model.engines import weight_shapes
from stepvad.model.modelfile import NETWORK, Origin, sha256
from stepvad.model.scoring import Model, Surprise
from stepvad.site import demo
from stepvad.site.settings.file import load
from stepvad.skeletons import COCO17, MEDIAPIPE33, STEP18
from stepvad.windows.body import Repairs
from tests.evaluation.layouts import write_layouts
from tests.pages import README, ROOT, Block, blocks, check_output, pages, run, run_here
from tests.video import graphs
from tests.video.clips import write_video

DOCS = ROOT / "docs"


def spans(page: Path) -> list[str]:
    """What stands in backticks on a page, outside of blocks."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall("`([^`\n]+)`", text)


FILES = (".bin", ".checkpoint", ".db", ".json", ".onnx", ".safetensors", ".toml")
"""Ends of the names of files that pages talk of."""


@cache
def modules() -> list[ModuleType]:
    found = [info.name for info in pkgutil.walk_packages(stepvad.__path__, "stepvad.")]
    return [importlib.import_module(name) for name in found if name != "stepvad.__main__"]


def exists(dotted: str) -> bool:
    """Whether `scoring.smooth`, `stepvad.formats.labels.find` or `studies/speed.py` is there."""
    if dotted.startswith("studies/"):
        return (ROOT / dotted).is_file()
    first, *rest = dotted.removeprefix("stepvad.").split(".")
    named = [module for module in modules() if module.__name__.endswith(f".{first}")]
    if named:
        return any(has(module, rest) for module in named)
    return any(hasattr(m, first) and has(getattr(m, first), rest) for m in modules())


def has(thing: object, names: list[str]) -> bool:
    for name in names:
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True


def test_the_blocks_on_errors_show_what_happens(tmp_path: Path) -> None:
    for block in blocks(DOCS / "reference" / "errors.md"):
        check_output(block, run(block, tmp_path))


@pytest.mark.slow
def test_the_guide_to_your_own_footage_runs(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    walkers.write_dataset(mine, seed=4, train_clips=4, test_clips=3, seconds=8.0)
    (mine / "pose" / "train").rename(tmp_path / "normal")
    (tmp_path / "new").symlink_to(mine / "pose" / "test")
    for block in blocks(DOCS / "guides" / "your-footage.md"):
        check_output(block, run_here(block, tmp_path))
    assert len(list(stepvad.read_clips(tmp_path / "normal.parquet"))) == 4
    assert len(list((tmp_path / "timelines").glob("*.png"))) == 3


@pytest.mark.slow
def test_the_guide_to_an_alert_runs(tmp_path: Path) -> None:
    for block in blocks(DOCS / "guides" / "explain-an-alert.md"):
        check_output(block, run_here(block, tmp_path))
    page = (tmp_path / "alert.html").read_text("utf-8")
    assert "<article" in page
    assert "about 5 alerts an hour: a budget" in page
    assert len((DOCS / "images" / "report.png").read_bytes()) < 200_000


@pytest.mark.slow
def test_the_page_on_walkers_shows_what_its_commands_print(tmp_path: Path) -> None:
    for block in blocks(DOCS / "benchmarks" / "walkers.md"):
        check_output(block, run_here(block, tmp_path))
    shown = (DOCS / "images" / "walkers.png").read_bytes()
    assert len(shown) < 300_000
    assert (tmp_path / "contact-sheet.png").stat().st_size == pytest.approx(len(shown), rel=0.2)


@pytest.mark.slow
def test_the_guide_to_the_paper_runs_on_small_data_of_its_layouts(tmp_path: Path) -> None:
    write_layouts(tmp_path)
    (tmp_path / "trial.toml").write_text("epochs = 1\nwidth = 16\n")
    for block in blocks(DOCS / "guides" / "reproduce-the-paper.md"):
        if block.mark == "not run: minutes":  # a measurement of ours, on other data
            continue
        assert block.mark in ("", "not run: hours")
        (command,) = block.commands  # hours, so one small training of them
        text = f"$ {command} --settings trial.toml --runs 1\n"
        block = Block(block.page, block.line, block.language, "", text)
        check_output(block, run_here(block, tmp_path))


@pytest.mark.slow
def test_the_page_on_runtimes_runs(tmp_path: Path) -> None:
    walkers.write_dataset(tmp_path / "people", seed=4, train_clips=2, test_clips=2, seconds=8.0)
    (tmp_path / "people" / "pose" / "test").rename(tmp_path / "poses")
    config = Config(K=12, width=16, max_steps=8)
    train = stepvad.read_clips(tmp_path / "people" / "pose" / "train")
    stepvad.Detector.fit(train, config).save(tmp_path / "model.safetensors")
    printed = "".join(
        run_here(block, tmp_path) for block in blocks(DOCS / "concepts" / "runtimes.md")
    )
    assert "Runtime " in printed
    assert "deviate by" in printed
    assert (tmp_path / "model.onnx").exists()


@pytest.mark.slow
def test_the_page_on_explanations_runs(tmp_path: Path) -> None:
    walkers.write_dataset(tmp_path / "people", seed=4, train_clips=2, test_clips=2, seconds=8.0)
    (tmp_path / "people" / "pose" / "test").rename(tmp_path / "poses")
    config = Config(K=12, width=16, max_steps=8)
    train = stepvad.read_clips(tmp_path / "people" / "pose" / "train")
    stepvad.Detector.fit(train, config).save(tmp_path / "model.safetensors")
    (block,) = blocks(DOCS / "concepts" / "explanations.md")
    assert "Noise scale " in run_here(block, tmp_path)
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")


STARTS = [DOCS / "start" / f"{name}.md" for name in ("a-platform", "a-study", "your-own-poses")]
"""Pages by job whose blocks run without cameras."""


@pytest.mark.slow
@pytest.mark.parametrize("page", STARTS, ids=lambda page: page.stem)
def test_a_page_by_job_runs(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        check_output(block, run_here(block, tmp_path))


@pytest.mark.parametrize("name", ["falls-at-home", "a-shop"])
def test_the_settings_of_a_page_by_job_are_settings(name: str, tmp_path: Path) -> None:
    text = (DOCS / "start" / f"{name}.md").read_text("utf-8")
    whole, *parts = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "site.toml").write_text(whole + "".join(parts), encoding="utf-8")
    assert load(tmp_path / "site.toml").cameras


MEASURED = (
    "fuzzing.md",
    *("comparison.md", "core.md", "cost.md", "pictures.md", "speed.md", "studies.md"),
    *("budget.md", "video.md", "what-holds.md", "site.md", "archive.md"),
    "when-something-fails.md",
    *(
        "first-day.md",
        "a-thousand-cameras.md",
        "footage.md",
        "versions.md",
        "views.md",
        "hr-trajectories.md",
    ),
)
"""Pages of figures that take long to make."""


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    every = [block for page in pages() for block in blocks(page)]
    measured = [block for block in every if block.page.name in MEASURED]
    assert all(block.mark and block.mark.startswith("not run: ") for block in measured)
    every = [block for block in every if block not in measured]
    assert len(every) > 10
    marks = ["not run: minutes", *["not run: hours"] * 3, "fails"]
    assert [block.mark for block in every if block.mark] == marks
    tested = {"README.md", "your-footage.md", "reproduce-the-paper.md", "errors.md", "walkers.md"}
    tested |= {"methods.md", "runtimes.md", "explanations.md", "explain-an-alert.md"}
    tested |= {"alerts-elsewhere.md", "api.md", "your-own-method.md", "your-pose-network.md"}
    tested |= {"recipes.md"}
    tested |= {page.name for page in STARTS}
    with_blocks = {block.page.name for block in every}
    assert with_blocks - {"file-formats.md"} == tested


def test_the_pages_on_commands_and_settings_are_what_the_code_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = runpy.run_path(str(ROOT / "scripts" / "docs"))["reference"](is_check=True)
    assert status == 0, capsys.readouterr().out


def test_a_figure_names_a_version_or_a_date_and_no_bare_commit() -> None:
    commit = r"(?<![\w.])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b(?!…)"
    found = {page.name: re.findall(commit, page.read_text("utf-8")) for page in pages()}
    assert {name: hashes for name, hashes in found.items() if hashes} == {}


def test_the_pages_on_python_and_errors_hold_the_public_names() -> None:
    texts = [(DOCS / "reference" / page).read_text("utf-8") for page in ("api.md", "errors.md")]
    single = r"^::: stepvad\.(?:[a-z.]+\.)?(\w+)$(?!\n    options:)"  # packages have options
    documented = re.findall(single, "\n".join(texts), re.MULTILINE)
    assert sorted(documented) == sorted(stepvad.__all__)


PACKAGES = [baselines, evaluation, explain, interop, estimators]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.__name__)
def test_the_page_on_python_holds_the_names_of_a_package(package: ModuleType) -> None:
    page = (DOCS / "reference" / "api.md").read_text("utf-8")
    text = page.partition(f"::: {package.__name__}\n")[2]
    listed = re.findall(r"members: \[(.*)\]", text)[0].split(", ")
    single = rf"^::: (?:stepvad|{package.__name__})\.(\w+)$(?!\n    options:)"
    found = re.findall(single, page, re.MULTILINE)
    listed += [name for name in found if name in package.__all__]
    assert sorted(listed) == sorted(package.__all__)


def test_every_public_name_is_in_an_example_of_the_page_on_python() -> None:
    examples = "\n".join(block.text for block in blocks(DOCS / "reference" / "api.md"))
    used = {*re.findall(r"\w+", examples)}
    errors = {name for name in stepvad.__all__ if name.endswith("Error")}
    for names in (stepvad.__all__, *(package.__all__ for package in PACKAGES)):
        assert {*names} - errors <= used


@pytest.mark.slow
def test_the_examples_of_the_page_on_python_run(tmp_path: Path) -> None:
    walkers.write_dataset(tmp_path / "people", seed=4, train_clips=4, test_clips=3, seconds=12.0)
    config = Config(K=12, width=16, max_steps=8)
    train = stepvad.read_clips(tmp_path / "people" / "pose" / "train")
    stepvad.Detector.fit(train, config).save(tmp_path / "model.safetensors")
    for block in blocks(DOCS / "reference" / "api.md"):
        assert run_here(block, tmp_path)


@pytest.mark.slow
def test_the_guide_to_ones_own_method_runs(tmp_path: Path) -> None:
    printed, files = "", {}
    for block in blocks(DOCS / "guides" / "your-own-method.md"):
        named = re.match(r"# (\w+\.py)\n", block.text)
        if named:
            files[named[1]] = block.text
            (tmp_path / named[1]).write_text(block.text, encoding="utf-8")
        printed += run_here(block, tmp_path)
    assert printed.count("speed of the body") == 3
    assert "shop (%)" in printed
    lines = {name: len(text.split("\n", 1)[1].strip().splitlines()) for name, text in files.items()}
    assert set(lines) == {"speed.py", "shop.py"}
    assert max(lines.values()) <= 30  # as the page promises


def test_the_guide_to_ones_own_pose_network_runs(tmp_path: Path) -> None:
    pytest.importorskip("av")
    graphs.yolox(tmp_path / "yolox_nano.onnx", {80: [0.5, 0.5, 0.0, 0.0, 1.0, 0.9]})
    write_video(tmp_path / "lobby.mp4")
    (block,) = blocks(DOCS / "guides" / "your-pose-network.md")
    run_here(block, tmp_path)
    clip = stepvad.read_clip(tmp_path / "lobby.json")
    assert len(clip.tracks) == 1
    assert np.ptp(clip.tracks[0].keypoints[0], axis=0).tolist() == [0, 0]


def test_the_page_on_methods_tells_every_method() -> None:
    assert {*get_args(baselines.Method)} <= {*spans(DOCS / "concepts" / "methods.md")}


@pytest.mark.slow
def test_the_page_on_methods_shows_what_its_commands_print(tmp_path: Path) -> None:
    for block in blocks(DOCS / "concepts" / "methods.md"):
        check_output(block, run_here(block, tmp_path))


def test_the_page_on_model_files_names_everything_in_one() -> None:
    page = set(spans(DOCS / "reference" / "model-file.md"))
    tensors = {re.sub(r"^blocks\.[0-9]+", "blocks.i", name) for name in weight_shapes(Config())}
    arrays = {"mu", "W_K", "Lambda_K", "E_mean", "E_var", NETWORK, "centroids", "folds"}
    keys = {field.name for kind in (Origin, Repairs) for field in fields(kind)}
    metadata = {"format", "views"} | {field.name for field in fields(Model)} - {"space", "learned"}
    metadata |= {field.name for field in fields(Surprise)}
    distances = {"method", "points", "k"}
    assert tensors | arrays | keys | metadata | distances <= page


def test_the_model_card_is_that_of_the_bundled_model() -> None:
    card = (DOCS / "reference" / "model-card.md").read_text("utf-8")
    words = [sys.executable, "-m", "stepvad", "inspect", str(demo.MODEL)]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    facts = re.findall(r"(?:format [0-9]+|[0-9,]+ parameters|[0-9,]+ windows|[0-9,]+ clips)", told)
    facts += [demo.MODEL.name, sha256(demo.MODEL)]
    assert len(facts) == 6
    assert [fact for fact in facts if fact not in card] == []


@pytest.mark.parametrize("name", ["reference/errors.md", "start/troubleshooting.md"])
def test_the_error_messages_that_the_page_lists_are_in_the_code(name: str) -> None:
    templates = list(message_templates())
    page = (DOCS / name).read_text("utf-8").partition("\n## ")[2]
    listed = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(listed) > 5
    for message in listed:
        if "needs the" not in message:  # put together from two words; test_base_install sees them
            pattern = ".*".join(map(re.escape, message.split("…")))
            assert any(re.search(pattern, template) for template in templates), message


def message_templates() -> Iterator[str]:
    """Every text in the code, with … where a value goes."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_names_of_the_code_on_a_page_exist(page: Path) -> None:
    rooms = {module.__name__.split(".")[1] for module in modules()} | {"stepvad"}
    classes = {name for module in modules() for name in vars(module) if name[:1].isupper()}
    for span in spans(page):
        name = re.sub(r"\(.*", "", span)
        if name.endswith(FILES) or not re.fullmatch(r"\w+(\.\w+)+", name):
            continue
        if name.split(".")[0] in rooms | classes:
            assert exists(name), f"{page.name}: {name}"


def map_rows() -> list[list[str]]:
    """The cells of the table rows of the paper map."""
    text = (DOCS / "paper-map.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if not row[0].startswith(("in the paper", "the paper leaves"))]


def test_functions_in_the_paper_map_exist() -> None:
    for row in map_rows():
        for name in re.findall("`([^`]+)`", row[2]):
            assert exists(re.sub(r"[=(].*", "", name)), f"{row[0]}: {name}"


def test_tests_in_the_paper_map_exist() -> None:
    named = [test for row in map_rows() for test in re.findall(r"`(tests/[^`]+)`", row[3])]
    assert len(named) > 20
    for test in named:
        file, _, function = test.partition("::")
        assert f"\ndef {function}(" in (ROOT / file).read_text("utf-8"), test


def test_the_paper_map_is_complete() -> None:
    rows = map_rows()
    assert all(len(row) == 4 for row in rows)
    for number in range(1, 9):
        (row,) = [row for row in rows if row[0] == f"Eq. {number}"]
        assert "`tests/" in row[3]
    for part in ("Fig. 3", "Sec. 4.1", "Supp. C"):
        assert any(row[0].startswith(part) for row in rows)


def test_the_computed_page_shows_what_its_figures_give(
    capsys: pytest.CaptureFixture[str],
) -> None:
    importlib.import_module("studies.cost").main([])
    tables = capsys.readouterr().out.strip().split("\n\n")
    page = (DOCS / "benchmarks" / "cost.md").read_text("utf-8")
    assert [table for table in tables if table not in page] == []


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for kind in ("md", "toml") for path in sorted((ROOT / "docs").rglob(f"*.{kind}"))),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
OPTION = re.compile(r"--[a-z][a-z-]*")
WORD = re.compile(r"[a-z][a-z-]*\Z")
STEPVAD: Any = typer.main.get_command(app)
ENDS = ("&&", ";", "|", ">", "#")


def test_the_first_change_of_a_contributor_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^    ```python\n(.*?)^    ```", text, re.DOTALL | re.MULTILINE)
    reader, row, tests = map(textwrap.dedent, blocks)
    name, place = ast.literal_eval(f"{{{row}}}").popitem()
    module = ModuleType(place.partition(":")[0])
    exec(compile(reader, "csv_poses.py", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FORMATS, name, place)
    written: dict[str, Any] = {}
    exec(compile(tests, "test_csv_poses.py", "exec"), written)
    named = [name for name in written if name.startswith("test_")]
    assert len(named) == 2
    for test in named:
        (directory := tmp_path / test).mkdir()
        written[test](directory)


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """A page, and the words after the name of a program, in a block or in a sentence."""
    for page in PAGES:
        text = page.read_text("utf-8").replace("\\\n", " ")
        for found in re.finditer(rf"(?:`|\$ |^){program}([^\n`]*)", text, re.MULTILINE):
            words = found[1].split()
            end = next((i for i, word in enumerate(words) if word in ENDS), None)
            yield str(page.relative_to(ROOT)), words[:end]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, or the group if they name none of it, and the other words."""
    command = STEPVAD
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def options(words: list[str]) -> list[str]:
    return [found[0] for word in words if (found := OPTION.match(word))]


def test_options_of_stepvad_on_the_pages_exist() -> None:
    unknown, n = [], 0
    for page, words in commands("stepvad "):
        command, rest = command_of(words)
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        named = [] if rest[:1] == ["…"] else options(rest)  # …: of several commands
        unknown += [(page, words, one) for one in named if one not in {*known, "--help"}]
        n += len(named)
    assert unknown == []
    assert n > 300


def test_commands_of_stepvad_on_the_pages_exist() -> None:
    """In a block of commands and between backticks; a sentence may begin with our name."""
    code = re.compile(
        r"(?<!`)`stepvad ([^`\n]+)`|^\$ stepvad (.+)|(?<=\n)```sh\n(.*?)```", re.M | re.S
    )
    unknown, n = [], 0
    for page in PAGES:
        for found in code.finditer(page.read_text("utf-8")):
            lines = [found[1] or found[2] or ""]
            if found[3]:
                lines = re.findall(r"^stepvad (.+)", found[3], re.MULTILINE)
            for words in filter(None, map(str.split, lines)):
                command, rest = command_of(words)
                is_group = bool(getattr(command, "commands", {}))
                unknown += (
                    [(page.name, words)]
                    if is_group and WORD.match(rest[0] if rest else "-")
                    else []
                )
                n += 1
    assert unknown == []
    assert n > 200


def test_scripts_on_the_pages_exist_and_have_their_options() -> None:
    named = [*commands(r"(?:[\w./=-]+ )*?scripts/(?=[a-z])")]
    assert len(named) > 30
    unknown = []
    for page, (name, *rest) in named:
        script = ROOT / "scripts" / name.rstrip(".,:;)")
        source = script.read_text("utf-8") if script.is_file() else ""
        # scripts/test hands on what it does not know
        known = {*OPTION.findall(source)} | ({"--hypothesis-profile"} if name == "test" else set())
        if not source or not {*options(rest)} <= known:
            unknown.append((page, name, *rest))
    assert unknown == []


RECIPES = ROOT / "docs" / "guides" / "recipes.md"


def test_there_are_twelve_short_recipes() -> None:
    titles = re.findall("^## (.+)$", RECIPES.read_text("utf-8"), re.MULTILINE)
    assert len(titles) == 12
    for block in blocks(RECIPES):
        assert len([line for line in block.text.splitlines() if line.strip()]) < 10, block


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Telemetry")
def test_the_recipes_run(tmp_path: Path) -> None:
    walkers.write_dataset(tmp_path / "people", seed=4, train_clips=4, test_clips=3, seconds=12.0)
    config = Config(K=12, width=16, max_steps=8)
    train = list(stepvad.read_clips(tmp_path / "people" / "pose" / "train", fps=25))
    stepvad.Detector.fit(train, config).save(tmp_path / "model.safetensors")
    stepvad.write_clips(train, tmp_path / "walks.parquet")
    track = train[0].tracks[0]
    np.savez(tmp_path / "walk.npz", keypoints=track.keypoints, confidence=track.confidence)
    write_other_formats(train[0], tmp_path)
    printed = [run_here(block, tmp_path) for block in blocks(RECIPES)]
    assert all(printed)
    openpose, landmarks, own = printed[2:5]
    assert openpose.startswith("step18 ")
    assert landmarks.startswith("mediapipe33 ")
    assert own.split("'")[1::2] in (["torso", "left arm"], ["left arm", "torso"])


def write_other_formats(clip: Clip, root: Path) -> None:
    """The people of a clip as ultralytics, OpenPose and MediaPipe give them."""
    frames = [poses for _, poses in clip.by_frame()]
    summaries = [[as_summary(pose) for pose in poses] for poses in frames]
    (root / "results.json").write_text(json.dumps(summaries))
    (root / "lobby_json").mkdir()
    for number, (_, poses) in enumerate(clip.with_skeleton(STEP18).by_frame()):
        rows = [np.column_stack([pose.keypoints, pose.confidence]) for pose in poses]
        people = [{"pose_keypoints_2d": row.ravel().tolist()} for row in rows]
        name = f"lobby_{number:012}_keypoints.json"
        (root / "lobby_json" / name).write_text(json.dumps({"people": people}))
    marks = [[as_landmarks(pose) for pose in poses] for poses in frames]
    (root / "marks.json").write_text(json.dumps(marks))
    (root / "landmarks.py").write_text(LANDMARKS)


LANDMARKS = """
import json
from pathlib import Path
from types import SimpleNamespace as Some

found = json.loads(Path("marks.json").read_text())
results = [
    Some(pose_landmarks=[[Some(x=x, y=y, visibility=v) for x, y, v in one] for one in people])
    for people in found
]
"""


def as_summary(pose: stepvad.Pose) -> dict[str, object]:
    (x, y), low, high = pose.keypoints.T.tolist(), *bounds(pose)
    box = {"x1": low[0], "y1": low[1], "x2": high[0], "y2": high[1]}
    joints = {"x": x, "y": y, "visible": pose.confidence.tolist()}
    return {"confidence": 0.9, "box": box, "keypoints": joints, "track_id": pose.track_id}


def as_landmarks(pose: stepvad.Pose) -> list[list[float]]:
    """33 landmarks, those that COCO lacks in the middle."""
    middle = pose.keypoints.mean(axis=0)
    of = dict(zip(COCO17.joints, zip(pose.keypoints, pose.confidence, strict=True), strict=True))
    places = [of.get(joint, (middle, 0.5)) for joint in MEDIAPIPE33.joints]
    return [[float(xy[0]) / 640, float(xy[1]) / 480, float(sure)] for xy, sure in places]


def bounds(pose: stepvad.Pose) -> tuple[list[float], list[float]]:
    return pose.keypoints.min(axis=0).tolist(), pose.keypoints.max(axis=0).tolist()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    local = [target for target in targets if "://" not in target and "mailto:" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_page_on_python_describes_what_is_there() -> None:
    text = (DOCS / "reference" / "api.md").read_text("utf-8")
    parts = re.findall(
        r"^::: (\S+)\n(?:    .*\n)*?(?:      members: \[(.*)\])?$", text, re.MULTILINE
    )
    assert len(parts) > 20
    for name, members in parts:
        thing = pkgutil.resolve_name(name)
        assert [one for one in members.split(", ") if one and not hasattr(thing, one)] == [], name


def test_the_files_that_pages_on_the_code_name_are_there() -> None:
    rooms = ("src", "tests", "studies", "deploy", "examples")
    have = [f"/{path.relative_to(ROOT)}" for room in rooms for path in (ROOT / room).rglob("*.py")]
    for page in (ROOT / "SECURITY.md", DOCS / "architecture.md", *(DOCS / "concepts").glob("*.md")):
        named = re.findall(r"`([a-z_/]+\.py)`", page.read_text("utf-8"))
        assert [one for one in named if not any(h.endswith(f"/{one}") for h in have)] == [], page


def test_the_readme_counts_the_claims_that_hold() -> None:
    page = (DOCS / "benchmarks" / "what-holds.md").read_text("utf-8")
    verdicts = re.findall(r"\*\*(holds|in part|not seen|does not hold): ", page)
    hold, part = verdicts.count("holds"), verdicts.count("in part")
    assert hold + part == len(verdicts)  # none is not seen, or does not hold
    against = page.count(", against it on ")
    words = (
        f"In {hold} of {len(verdicts)} comparisons the paper is right on every data set tried, in "
        f"{part} on some; in {against} of those, a data set shows the opposite"
    )
    assert words in README.read_text("utf-8")


@pytest.mark.slow
def test_the_moving_picture_is_what_its_study_draws() -> None:
    from PIL import Image

    study = importlib.import_module("studies.animation")
    still = np.asarray(Image.open(DOCS / "images" / "demo-still.png"), dtype=float)
    drawn = np.asarray(study.draw(study.tell(), study.STILL), dtype=float)
    assert still.shape == drawn.shape
    assert np.abs(still - drawn).mean() < 1
    with Image.open(DOCS / "images" / "demo.webp") as film:
        assert getattr(film, "n_frames", 1) == study.LAST - study.FIRST + 1
    assert (DOCS / "images" / "demo.webp").stat().st_size < 2e6


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def notebook(path: Path) -> Any:
    nbformat = pytest.importorskip("nbformat")  # takes seconds
    return nbformat.read(path, 4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_of_a_notebook_is_committed(path: Path) -> None:
    cells = [cell for cell in notebook(path).cells if cell.cell_type == "code"]
    assert cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    if path.stem == "your-own-video" and not {"STEPVAD_VIDEO", "STEPVAD_NETWORKS"} <= {*os.environ}:
        pytest.skip("needs STEPVAD_VIDEO, a path, and STEPVAD_NETWORKS, options of extract")
    nbclient = pytest.importorskip("nbclient")
    found = notebook(path)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(found, timeout=300, resources=where).execute()
    printed = [o for cell in found.cells for o in cell.get("outputs", [])]
    assert [one for one in printed if one.get("name") == "stderr"] == []
    assert sum("image/png" in one.get("data", {}) for one in printed) >= 2
