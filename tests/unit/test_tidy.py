"""The style guide, executed: the rules that a machine can check and ruff does not.

A rule is a function from a module to the complaints about it. Each is tried on a planted offence
first, so that a rule that never fires is noticed.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("src", "tests", "bench", "examples", "tools")
TEXTS = (*CODE, "docs", ".ci")
TEXT_ENDINGS = {".py", ".md", ".toml", ".txt", ".sh", ".json", ""}

MODULE_LINES_MAX = 600  # from 400 on a reader wonders, and the head of every test run names it
FOLDER_MODULES_MAX = 25
FUNCTION_LINES_MAX = 70
HURRY_S = 60.0
BANNED_NAMES = {"utils", "util", "common", "misc", "helpers", "helper", "manager"}
KNOWN_FROM_RAY = {"src/holdfast/tune/utils.py"}  # a path that scripts import; it has no code
EMPTY_NAMES = {"one", "found", "known", "kept", "said", "told"}  # of variables
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
MAY_PICKLE = frozenset(  # modules that send pickles through a pipe
    {
        "src/holdfast/train/collective.py",
        "src/holdfast/api/picklable.py",
        "src/holdfast/objects/serial.py",
        "src/holdfast/tune/trainables/class_checkpoints.py",
        "src/holdfast/worker/entry.py",
        "src/holdfast/worker/job.py",
        # The one that keeps them: a function that cannot be imported, for the V1 `restore` alone.
        "src/holdfast/train/restore/pickled.py",
    }
)
ANYTHING = re.compile(r"\b(Base)?Exception\b")
READS_ENVIRONMENT = "src/holdfast/settings.py"
MAKES_PRIVATE_FOLDERS = "src/holdfast/storage/private_folders.py"


@dataclass(frozen=True)
class Module:
    """One file of Python, named relative to the top of the repository."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree: every rule looks at it, and walking takes seconds."""
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[str]:
        """The full names of modules imported anywhere in the file."""
        found: list[str] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found.extend(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.append(node.module or "")
        return found

    def is_below(self, folder: str) -> bool:
        return self.path.startswith(f"{folder}/")


Rule = Callable[[Module], Iterator[str]]


def short_modules(module: Module) -> Iterator[str]:
    lines = module.source.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{lines} lines; more than {MODULE_LINES_MAX} hold more than one idea"


def short_functions(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines; {FUNCTION_LINES_MAX} are enough"


def telling_names(module: Module) -> Iterator[str]:
    if module.path in KNOWN_FROM_RAY:
        return
    for part in Path(module.path).with_suffix("").parts:
        words = set(re.split(r"[_\-.]", part.lower()))
        if words & BANNED_NAMES:
            yield f"{part!r} says nothing about what is inside"
        if any(re.fullmatch(r"v\d+", word) for word in words):
            yield f"{part!r}: stored data carry versions, code does not"


def names_with_content(module: Module) -> Iterator[str]:
    if not module.is_below("src"):
        return
    fields = {
        id(field.target)
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
    for node in module.nodes:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
            continue
        if node.id in EMPTY_NAMES and id(node) not in fields:
            yield f"line {node.lineno}: {node.id!r} does not say what it is"


def no_pickle_at_rest(module: Module) -> Iterator[str]:
    if module.is_below("src") and module.path not in MAY_PICKLE:
        for name in module.imports:
            if name.partition(".")[0] in PICKLES:
                yield f"imports {name}"


def environment_in_one_place(module: Module) -> Iterator[str]:
    if not module.is_below("src") or module.path == READS_ENVIRONMENT:
        return
    for node in module.nodes:
        match node:
            case ast.Attribute(attr="environ" | "environb" | "getenv" | "putenv" as name):
                yield f"line {node.lineno}: os.{name}"
            case ast.ImportFrom(module="os", names=names):
                for alias in names:
                    if alias.name in {"environ", "environb", "getenv", "putenv"}:
                        yield f"line {node.lineno}: os.{alias.name}"


def private_folders_in_one_place(module: Module) -> Iterator[str]:
    """A name in the shared folder for temporary files is anybody's until it was looked at."""
    if not module.is_below("src/holdfast") or module.path == MAKES_PRIVATE_FOLDERS:
        return
    for node in module.nodes:
        match node:
            case ast.Attribute(attr="gettempdir" | "gettempdirb" | "mktemp" as name):
                yield f"line {node.lineno}: tempfile.{name}"
            case ast.ImportFrom(module="tempfile"):
                yield f"line {node.lineno}: names of tempfile"


def numbered_promises(module: Module) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type != tokenize.COMMENT:
            continue
        promised = re.search(r"\b(TODO|FIXME|XXX|HACK)\b", token.string)
        if promised and not re.search(r"#\d+", token.string[1:]):
            yield f"line {token.start[0]}: {token.string} names no issue"


def nothing_swallowed(module: Module) -> Iterator[str]:
    """An error that may pass is named; whatever is not expected must be heard of."""
    for node in module.nodes:
        match node:
            case ast.ExceptHandler(type=kind, body=[ast.Pass() | ast.Expr(value=ast.Constant())]):
                kinds = [kind]
            case ast.Call(func=ast.Attribute(attr="suppress") | ast.Name(id="suppress"), args=args):
                kinds = [*args]
            case _:
                continue
        if any(kind is None or ANYTHING.search(ast.unparse(kind)) for kind in kinds):
            yield f"line {node.lineno}: every error ends here without a word"


def is_test(module: Module) -> bool:
    """Servers on loopback are slow on purpose, and are no tests."""
    return module.is_below("tests") and not module.is_below("tests/servers")


def no_sleeping_tests(module: Module) -> Iterator[str]:
    if not is_test(module):
        return
    from_time = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "time"
        and any(alias.name == "sleep" for alias in node.names)
        for node in module.nodes
    )
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="sleep")):
                yield f"line {node.lineno}: time.sleep; wait for the event, or pass a clock"
            case ast.Call(func=ast.Name(id="sleep")) if from_time:
                yield f"line {node.lineno}: time.sleep; wait for the event, or pass a clock"


def patient_tests(module: Module) -> Iterator[str]:
    """No outcome depends on how busy the machine is; `tests.patience` is long enough for all."""
    if not is_test(module):
        return
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="sched_yield")):
                yield f"line {node.lineno}: spins; tests.patience.pause leaves the processor free"
            case ast.Attribute(value=ast.Attribute(attr="mark"), attr="timeout"):
                yield f"line {node.lineno}: a limit of its own; that of all tests is enough"
            case (
                ast.keyword(arg="timeout", value=ast.Constant(value=int() | float() as limit_s))
                | ast.Call(
                    func=ast.Attribute(attr="wait" | "join" | "next_event"),
                    args=[ast.Constant(value=int() | float() as limit_s)],
                )
            ):
                # Less than a second is not meant to be enough.
                if 1 < limit_s < HURRY_S:
                    yield f"line {node.lineno}: {limit_s:g} s may be too short; use PATIENCE_S"
            case ast.Assert(test=ast.Compare(ops=[*_, ast.Lt() | ast.LtE()]) as claim):
                if re.search(r"time\.(monotonic|perf_counter)\(\) - .+<", ast.unparse(claim)):
                    yield f"line {node.lineno}: how fast something is, bench shows"


def pure_core(module: Module) -> Iterator[str]:
    """What the import contract forbids, and any library besides: it can only list, not exclude."""
    if not module.is_below("src/holdfast/core"):
        return
    for name in module.imports:
        top = name.partition(".")[0]
        ours = name == "holdfast.errors" or (name + ".").startswith("holdfast.core.")
        if (module.path, name) in _excepted():
            continue
        if top in _impure() or not (ours or top in sys.stdlib_module_names):
            yield f"imports {name}"


PLANTED: dict[Rule, Module] = {
    short_modules: Module("src/holdfast/long.py", "x = 1\n" * 601),
    short_functions: Module("tests/unit/test_x.py", "def f():\n" + "    x = 1\n" * 70),
    telling_names: Module("src/holdfast/train_utils.py", ""),
    names_with_content: Module("src/holdfast/x.py", "def f():\n    found = 1\n"),
    no_pickle_at_rest: Module("src/holdfast/journal/log.py", "from cloudpickle import dumps\n"),
    environment_in_one_place: Module("src/holdfast/cli/ls.py", "import os\nos.environ['A']\n"),
    private_folders_in_one_place: Module("src/holdfast/x.py", "tempfile.gettempdir()\n"),
    numbered_promises: Module("tools/x.py", "# TODO: later\n"),
    nothing_swallowed: Module("bench/x.py", "try:\n    f()\nexcept:\n    pass\n"),
    no_sleeping_tests: Module("tests/test_x.py", "from time import sleep\nsleep(1)\n"),
    patient_tests: Module("tests/test_x.py", "import os\nwhile f(): os.sched_yield()\n"),
    pure_core: Module("src/holdfast/core/x.py", "from holdfast.storage import base\n"),
}
MORE_PLANTED: list[tuple[Rule, Module]] = [
    (telling_names, Module("src/holdfast/v2/run.py", "")),
    (names_with_content, Module("src/holdfast/x.py", "x = [one.y for one in z]\n")),
    (environment_in_one_place, Module("src/holdfast/x.py", "from os import getenv\n")),
    (nothing_swallowed, Module("src/x.py", "try: f()\nexcept (A, Exception): ...\n")),
    (nothing_swallowed, Module("src/x.py", "with suppress(Exception):\n    f()\n")),
    (no_sleeping_tests, Module("tests/conftest.py", "import time\ntime.sleep(1)\n")),
    (patient_tests, Module("tests/x.py", "driver.wait(timeout=5)\n")),
    (patient_tests, Module("tests/x.py", "thread.join(10.0)\n")),
    (patient_tests, Module("tests/x.py", "@pytest.mark.timeout(300)\ndef test(): ...\n")),
    (patient_tests, Module("tests/x.py", "assert time.monotonic() - began < 5\n")),
    (patient_tests, Module("tests/x.py", "assert 1 < time.monotonic() - began < 5\n")),
    (pure_core, Module("src/holdfast/core/x.py", "import time\n")),
    (pure_core, Module("src/holdfast/core/x.py", "import msgspec\n")),
]
INNOCENT: list[tuple[Rule, Module]] = [
    (short_modules, Module("src/holdfast/long.py", "x = 1\n" * 600)),
    (short_functions, Module("src/holdfast/x.py", "def f():\n" + "    x = 1\n" * 69)),
    (names_with_content, Module("src/holdfast/x.py", "class A(B):\n    kept: int\n")),
    (names_with_content, Module("tests/x.py", "one = 1\n")),
    (no_pickle_at_rest, Module("tests/unit/test_errors.py", "import pickle\n")),
    (environment_in_one_place, Module(READS_ENVIRONMENT, "import os\nos.environ['A']\n")),
    (private_folders_in_one_place, Module("src/holdfast/x.py", "tempfile.mkdtemp()\n")),
    (private_folders_in_one_place, Module(MAKES_PRIVATE_FOLDERS, "tempfile.gettempdir()\n")),
    (numbered_promises, Module("tools/x.py", "# TODO(#12): later\n'TODO'\n")),
    (nothing_swallowed, Module("src/x.py", "with suppress(FileNotFoundError):\n    f()\n")),
    (nothing_swallowed, Module("src/x.py", "try: f()\nexcept A: pass\nexcept B: g()\n")),
    (nothing_swallowed, Module("src/x.py", "try: f()\nexcept Exception: g()\n")),
    (no_sleeping_tests, Module("tests/x.py", "clock.sleep(1)\n")),
    (patient_tests, Module("tests/x.py", "driver.wait(timeout=PATIENCE_S)\n")),
    (patient_tests, Module("tests/x.py", "assert not channel.wait(0.1)\n")),
    (patient_tests, Module("tests/x.py", "assert time.monotonic() - began >= 0.1\n")),
    (pure_core, Module("src/holdfast/core/x.py", "import json, holdfast.errors\n")),
    (pure_core, Module("src/holdfast/core/x.py", "from holdfast.core.names import f\n")),
]


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_the_code_keeps_the_rule(rule: Rule) -> None:
    complaints = [f"{module.path}: {said}" for module in _modules() for said in rule(module)]

    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(("rule", "module"), [*PLANTED.items(), *MORE_PLANTED])
def test_the_rule_catches_a_planted_offence(rule: Rule, module: Module) -> None:
    assert list(rule(module))


@pytest.mark.parametrize(("rule", "module"), INNOCENT)
def test_the_rule_leaves_good_code_alone(rule: Rule, module: Module) -> None:
    assert not list(rule(module))


def test_the_rules_are_tried_on_the_code_there_is() -> None:
    paths = {module.path for module in _modules()}

    assert {"src/holdfast/__init__.py", "tests/unit/test_tidy.py"} <= paths


def test_a_folder_is_seen_at_a_glance() -> None:
    sizes = Counter(path.parent for path in (ROOT / "src").rglob("*.py"))

    full = {str(folder.relative_to(ROOT)): size for folder, size in sizes.items()}

    assert not {folder: size for folder, size in full.items() if size > FOLDER_MODULES_MAX}


def test_unit_tests_are_where_the_source_is() -> None:
    """`tests/unit/control/run` tests `src/holdfast/control/run`; so does `bench` the benchmarks."""
    unit, source = ROOT / "tests" / "unit", ROOT / "src" / "holdfast"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("*.py")}

    astray = {str(folder) for folder in folders if not (source / folder).is_dir()}

    assert astray <= {"bench"}


# A home or work folder of somebody's machine; a pattern, so that it does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.{}])/(?:home|Users|root|work|opt|mnt)/\w|\b[A-Z]:\\\w")


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in _texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["home", "root", "Users", "work", "opt"])
def test_a_machine_path_is_recognised(folder: str) -> None:
    assert MACHINE_PATH.search(f"cd '/{folder}/ann'")


@pytest.mark.parametrize("innocent", ["s3://lab/home/run", "tests/work/x", "{root}/work/x"])
def test_a_path_below_something_else_is_no_machine_path(innocent: str) -> None:
    assert not MACHINE_PATH.search(innocent)


@cache
def _impure() -> frozenset[str]:
    """Return what the contract in pyproject.toml keeps out of `core`."""
    return frozenset(_pure_core_contract()["forbidden_modules"])


@cache
def _excepted() -> frozenset[tuple[str, str]]:
    """Return the modules of `core` that the contract lets import something, and what."""
    pairs = (one.split(" -> ") for one in _pure_core_contract()["ignore_imports"])
    return frozenset((f"src/{module.replace('.', '/')}.py", name) for module, name in pairs)


@cache
def _pure_core_contract() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["id"] == "core-is-pure")
    found: dict[str, Any] = contract
    return found


def _modules() -> Iterator[Module]:
    for path in _files(CODE):
        if path.suffix == ".py":
            yield Module(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def _texts() -> Iterator[Path]:
    yield from (path for path in sorted(ROOT.glob("*")) if path.is_file() and _is_text(path))
    yield from (path for path in _files(TEXTS) if _is_text(path))


def _files(folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and not {"__pycache__", "results"} & set(path.parts):
                yield path


def _is_text(path: Path) -> bool:
    return path.suffix in TEXT_ENDINGS and path.name != ".git"  # a file, in a worktree
