"""Check knowledge/*.yml, and compile it to gpukit/src/gpukit/data/knowledge.json. One line for each fault."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import jsonschema
import yaml

try:
    from re import _constants as kinds
    from re import _parser as parser
except ImportError:  # Python 3.10
    import sre_constants as kinds
    import sre_parse as parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpukit/src"))
from catalogue.check import explained, place
from catalogue.support import parse
from gpukit.errors.conditions import PREDICATES
from gpukit.errors.machine import Machine
from gpukit.findings.causes import COMMANDS, FILTERS, PLACEHOLDER, REQUIREMENTS, names_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "knowledge"
SCHEMA = FOLDER / "schema.json"
TARGET = ROOT / "gpukit/src/gpukit/data/knowledge.json"
COLUMNS = 120
FLAGS = re.IGNORECASE | re.MULTILINE
MIN_ANCHOR = 3
OPERATORS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
FUNCTIONS = ("text", "maybe", "sure")
CAPTURE = re.compile(r"\(\?P<(\w+?)\d*>")


class FaultError(ValueError):
    """What is wrong in an entry."""


def load() -> dict[str, Any]:
    return {path.stem: parse(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yml"))}


# Checks


def faults() -> list[str]:
    """The faults of the first check that finds any."""
    return list(unreadable()) or list(against_schema()) or list(wrong_entries())


def unreadable() -> Iterator[str]:
    for path in sorted(FOLDER.glob("*.yml")):
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > COLUMNS:
                yield f"knowledge/{path.name}, line {number}: it has {len(line)} columns; the limit is {COLUMNS}."
        try:
            parse(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            yield f"knowledge/{path.name}{line}: not valid YAML: {getattr(error, 'problem', error)}."


def against_schema() -> Iterator[str]:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for name, data in load().items():
        kind = "common" if name == "common" else "topic"
        validator = jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{kind}"})
        for error in validator.iter_errors(data):
            yield f"knowledge/{name}.yml: {place(error)}: {explained(error)}"


def wrong_entries() -> Iterator[str]:
    """What the schema cannot see: names that do not exist, and patterns that do not match their example."""
    data = load()
    common = data.pop("common")
    shares = {f"{name}_share" for name in ("own", "others", "unused", "free")}
    facts = {*common["facts"], *common["figures"], "others", "spare", *shares}
    causes: dict[str, str] = {}
    signs: dict[str, str] = {}
    captures: dict[str, set[str]] = {}  # of each cause: what the patterns of its signs can capture
    for topic, entries in data.items():
        for id in entries["causes"]:
            if id in causes:
                yield f"knowledge/{topic}.yml: causes.{id}: {causes[id]}.yml has this id too."
            causes[id] = topic
    for name in set(common["topics"]) - set(data):
        yield f"knowledge/common.yml: topics: there is no {name}.yml."
    for topic, entries in data.items():
        for sign in entries.get("signs", ()):
            where = f"knowledge/{topic}.yml: signs.{sign['id']}"
            if sign["id"] in signs:
                yield f"{where}: {signs[sign['id']]}.yml has this id too."
            signs[sign["id"]] = topic
            if sign.get("more", "host") not in common["looks"]:
                yield f"{where}.more: common.yml has no look {sign['more']}."
            try:
                patterns = [re.compile(each, FLAGS) for each in texts(sign)]
            except re.error as error:
                yield f"{where}.text: {error}."
                continue
            if not any(pattern.search(sign["example"]) for pattern in patterns):
                yield f"{where}.example: no pattern of `text` matches it."
            program = sign.get("program")
            if message := wrong_condition(program if isinstance(program, str) else None, facts):
                yield f"{where}.program: {message}"
            found = [always_captured(each) for each in texts(sign)]
            for cause in map(used, sign["causes"]):
                if cause["id"] not in causes:
                    yield f"{where}.causes: there is no cause {cause['id']}."
                for known in found:
                    before = captures.get(cause["id"])
                    captures[cause["id"]] = set(known) if before is None else before & known
                if message := wrong_condition(cause.get("when"), facts | set().union(*found)):
                    yield f"{where}.causes.{cause['id']}.when: {message}"
    for fact, entry in common["facts"].items():
        if message := wrong_condition(entry["test"], facts):
            yield f"knowledge/common.yml: facts.{fact}.test: {message}"
    for topic, entries in data.items():
        for id, cause in entries["causes"].items():
            where = f"knowledge/{topic}.yml: causes.{id}"
            every = {
                name for sign in entries.get("signs", ()) for each in texts(sign) for name in CAPTURE.findall(each)
            }
            every |= {name for other in data.values() for sign in other.get("signs", ()) if id in map_ids(sign)
                      for each in texts(sign) for name in CAPTURE.findall(each)}  # fmt: skip
            if message := wrong_condition(cause.get("when"), facts | every):
                yield f"{where}.when: {message}"
            for field in ("why", "remedy", "check"):
                for text in all_forms(cause.get(field, "")):
                    for missing in unknown_names(text, captures.get(id)):
                        yield f"{where}.{field}: a pattern of its signs does not capture {missing}: give it a default."


def always_captured(pattern: str) -> set[str]:
    """The names that a pattern captures whenever it matches."""
    parsed = parser.parse(pattern, FLAGS)
    names = {number: name.rstrip("0123456789") for name, number in parsed.state.groupdict.items()}

    def walk(items: Any) -> set[str]:
        found: set[str] = set()
        for kind, value in items:
            if kind is kinds.SUBPATTERN:
                found |= walk(value[3]) | ({names[value[0]]} if value[0] in names else set())
            elif kind is kinds.BRANCH:
                found |= set.intersection(*map(walk, value[1]))
            elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT) and value[0] > 0:
                found |= walk(value[2])
        return found

    return walk(parsed)


def map_ids(sign: dict[str, Any]) -> list[str]:
    return [used(each)["id"] for each in sign["causes"]]


def used(cause: Any) -> dict[str, Any]:
    """A cause of a sign, which is an id, or a mapping if its condition or check differs here."""
    return {"id": cause} if isinstance(cause, str) else cause


def texts(sign: dict[str, Any]) -> list[str]:
    """The patterns of a sign. A long one is a list of its parts."""
    text = sign["text"]
    return [text] if isinstance(text, str) else [each if isinstance(each, str) else "".join(each) for each in text]


def all_forms(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value.values())


def unknown_names(text: str, captured: set[str] | None) -> set[str]:
    """The placeholders that can be empty here. `captured` is None if only checks name this cause, with values."""
    for found in PLACEHOLDER.finditer(text):
        if found[2] and found[2] not in FILTERS:
            return {f"the filter {found[2]}"}
    needed = {name for name in names_of(text) if not name.startswith("machine.")} - {REQUIREMENTS, *COMMANDS["project"]}
    return set() if captured is None else needed - captured


def wrong_condition(text: str | None, names: set[str]) -> str:
    """What is wrong with an expression; empty if nothing is."""
    try:
        condition(text, names)
    except (FaultError, SyntaxError, re.error) as error:
        return f"{error}."
    return ""


# Compiling


def condition(text: str | None, names: set[str] | None = None) -> Any:
    """An expression as nested lists: an operator or function and its operands."""
    if not text:
        return None

    def compiled(node: ast.expr) -> Any:
        if isinstance(node, ast.BoolOp):
            return ["and" if isinstance(node.op, ast.And) else "or", *map(compiled, node.values)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ["not", compiled(node.operand)]
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
            return [OPERATORS[type(node.ops[0])], compiled(node.left), compiled(node.comparators[0])]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in PREDICATES and not node.args:
                return ["predicate", node.func.id]
            if node.func.id not in FUNCTIONS:
                raise FaultError(f"{node.func.id} is neither a function nor a predicate")
            if node.func.id == "text":
                patterns = [ast.literal_eval(each) for each in node.args]
                for each in patterns:
                    if not each.isprintable():  # such as a backspace, which YAML reads where double quotes have \b
                        raise FaultError(f"{each!r} has a character that cannot be printed")
                    re.compile(each, FLAGS)
                return ["text", *patterns]
            return [node.func.id, compiled(node.args[0])]
        if isinstance(node, ast.Constant):
            return ["value", str(node.value)]
        path = ast.unparse(node)
        if path.startswith("machine."):
            try:
                attrgetter(path.partition(".")[2])(Machine())
            except AttributeError:
                raise FaultError(f"docs/machine.md does not describe {path}") from None
            return ["machine", path.partition(".")[2]]
        if isinstance(node, ast.Name):
            if names is not None and node.id not in names:
                raise FaultError(f"{node.id} is neither a fact of common.yml nor a capture")
            return ["fact" if node.id in FACTS else "capture", node.id]
        raise FaultError(f"`{path}` is not allowed")

    # Regular expressions stand in it as they are, like raw strings.
    raw = re.sub(r"'[^']*'|\"[^\"]*\"", lambda found: "r" + found[0], text)
    return compiled(ast.parse(raw, mode="eval").body)


FACTS = set(parse((FOLDER / "common.yml").read_text(encoding="utf-8"))["facts"])


def anchors(pattern: str) -> list[str]:
    """Strings in lower case, one of which every matching text contains; empty if there are none."""
    return _anchors(parser.parse(pattern, FLAGS)) or []


def _anchors(items: Any) -> list[str] | None:
    """The best choice for a sequence of parts: the one whose shortest string is the longest."""
    choices: list[list[str]] = []
    run = ""
    for kind, value in [*items, (None, None)]:
        if kind is kinds.LITERAL:
            run += chr(value).lower()
            continue
        if len(run) >= MIN_ANCHOR:
            choices.append([run])
        run = ""
        if kind is kinds.SUBPATTERN:
            inner = _anchors(value[3])
        elif kind is kinds.BRANCH:
            parts = [_anchors(each) for each in value[1]]
            inner = None if None in parts else [word for each in parts for word in each or ()]
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT) and value[0] > 0:
            inner = _anchors(value[2])
        else:
            inner = None
        if inner:
            choices.append(inner)
    if not choices:
        return None
    return max(choices, key=lambda words: (min(map(len, words)) - 2 * (len(words) > 1), -len(words)))


def compiled() -> dict[str, Any]:
    data = load()
    common = data.pop("common")
    causes = {id: cause(entry) for entries in data.values() for id, entry in entries["causes"].items()}
    signs = {entry["id"]: sign(entry, topic) for topic in common["topics"] for entry in data[topic].get("signs", ())}
    facts = {name: {**entry, "test": condition(entry["test"])} for name, entry in common["facts"].items()}
    rest = {name: common[name] for name in ("figures", "values", "looks", "steps")}
    in_text = [{**each, "text": [each["text"], *anchors(each["text"])]} for each in common["in_text"]]
    lines = {name: "|".join(texts({"text": each})) for name, each in common["lines"].items()}
    topics = {name: data[name]["about"] for name in common["topics"]}
    parts = {"topics": topics, "facts": facts, "lines": lines, "in_text": in_text}
    return {**parts, **rest, "causes": causes, "signs": signs}


def cause(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, **({"when": condition(entry["when"])} if entry.get("when") else {})}


def sign(entry: dict[str, Any], topic: str) -> dict[str, Any]:
    causes = [
        {**each, "when": condition(each["when"])} if "when" in each else each for each in map(used, entry["causes"])
    ]
    kept = {name: value for name, value in entry.items() if name not in ("id", "text", "causes")}
    if isinstance(entry.get("program"), str):
        kept["program"] = condition(entry["program"])
    return {"topic": topic, "text": [[each, *anchors(each)] for each in texts(entry)], "causes": causes, **kept}


def written() -> str:
    """The JSON, with one line for each entry, so that a change of one is a change of one line."""
    parts = []
    for name, entries in compiled().items():
        pairs = entries.items() if isinstance(entries, dict) else None
        rows = [f"{json.dumps(key)}: {_json(value)}" for key, value in pairs] if pairs else map(_json, entries)
        opening, closing = "{}" if pairs else "[]"
        parts.append(f"{json.dumps(name)}: {opening}\n" + ",\n".join(rows) + f"\n{closing}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def main() -> int:
    found = faults()
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    if found:
        return 1
    TARGET.write_text(written(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
