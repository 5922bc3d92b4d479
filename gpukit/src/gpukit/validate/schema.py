"""Problems found by a JSON schema, with the remedy that the schema states.

A schema of ours has five keywords more than JSON Schema:

    remedy      what to do if the rule fails
    format      one of formats.py
    declared    the value is a name, or has names in it, that must stand elsewhere in the file; those in the expressions
                of a mapping must stand in the mapping:
                `under` (the places: their keys, or their values), `also` (other names), `part` (a pattern for the
                names in a text), `only` ("alike": if it resembles one that is there; "if any": if any is there)
    unique      a key whose values must differ among the mappings in a list, or in a mapping
    same        places, each as a list of keys, whose values must be equal where they are there
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

from gpukit.project.keys import values
from gpukit.project.messages import alike
from gpukit.validate.formats import EXPRESSION, FORMATS
from gpukit.validate.problem import RESTORE, Problem, quoted

# JSON Schema's types, in the words of all formats
TYPES = {"boolean": "true or false", "string": "a string", "object": "a mapping", "array": "a list"}
TYPES.update({"integer": "a whole number", "number": "a number", "null": "empty"})


def errors(jsonschema: Any, definition: Mapping[str, Any], content: Any) -> Iterable[Any]:
    """What jsonschema finds in a file's content, with our keywords."""

    def declared(_: Any, rule: Mapping[str, Any], instance: Any, __: Any) -> Iterator[Any]:
        whole = isinstance(instance, dict)
        if not (whole or isinstance(instance, str)) or "include" in content:  # Compose's: other files have names, too
            return
        there = [name for pattern in rule["under"] for name in values(instance if whole else content, pattern)]
        known = [*there, *rule.get("also", [])]
        text = instance
        if whole:
            text = re.sub(r"'[^']*'", "", " ".join(EXPRESSION.findall(json.dumps(instance, default=str))))
        computed = whole and any("$" in name for name in there)  # such as a matrix from a step's output
        for name in [] if computed else dict.fromkeys(re.findall(rule.get("part", r"(?s)\A.*\Z"), text)):
            meant = alike(name, known)
            needed = {"alike": meant, "if any": there}.get(rule.get("only", ""), True)
            if name not in known and "$" not in name and needed:
                where = re.sub("/\\*/(name|id)$", "", rule["under"][0][1:])
                cause = ValueError(f"did you mean `{meant}`?") if meant else None
                yield jsonschema.ValidationError(f"{name} is not declared under {where}:", cause=cause)

    def same(_: Any, places: list[list[str]], instance: Any, __: Any) -> Iterator[Any]:
        found = [reduce(lambda inner, step: (inner or {}).get(step), place, instance) for place in places]
        if len({str(value) for value in found if value is not None}) > 1:
            yield jsonschema.ValidationError(f"{' and '.join('/'.join(place) for place in places)} differ")

    def unique(_: Any, key: str, instance: Any, __: Any) -> Iterator[Any]:
        entries = instance.values() if isinstance(instance, dict) else instance
        given = [str(entry[key]) for entry in entries if isinstance(entry, dict) and key in entry]
        repeated = [value for value in dict.fromkeys(given) if given.count(value) > 1]
        if repeated:
            yield jsonschema.ValidationError(f"{key} is {repeated[0]} more than once")

    checker = jsonschema.FormatChecker(formats=())
    for name, check in FORMATS.items():
        checker.checks(name, raises=ValueError)(
            lambda text, check=check: not isinstance(text, str) or check(text) or True
        )
    ours = {"declared": declared, "same": same, "unique": unique}
    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, ours)
    return kind(definition, format_checker=checker).iter_errors(content)


def schema_problems(file: str, error: Any, rules: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """An error of jsonschema as problems, with the remedy in the schema; values are not printed.

    Each is given with its place, or with the place that a misspelled key was meant for.
    """
    place = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.absolute_path)
    remedy = remedy_of(error, rules) or RESTORE
    kind = error.validator
    wanted = error.validator_value
    instance = error.instance
    known = error.schema.get("properties", {})
    if kind == "required":
        for name in [name for name in wanted if name not in instance]:
            meant = f"{place}/{name}"
            yield meant, Problem(file, meant, "is missing", known.get(name, {}).get("remedy", remedy))
        return
    if kind == "additionalProperties" and wanted is False:
        for name in sorted({*instance} - {*known}):
            meant = alike(name, known)
            instead = f"did you mean `{meant}`?" if meant else remedy
            yield f"{place}/{meant or name}", Problem(file, f"{place}/{name}", "is unknown", instead)
        return
    if kind == "type":
        names = [wanted] if isinstance(wanted, str) else wanted
        what = f"is {type_name(instance)}, and must be {' or '.join(TYPES[name] for name in names)}"
    elif kind == "const":
        what = f"must be {json.dumps(wanted)}"
    elif kind == "enum":
        what = f"must be one of {', '.join(map(json.dumps, wanted))}"
    elif kind == "contains":
        what = "a required item is missing from the list"
    elif kind in ("minLength", "minItems"):
        what = "is empty"
    elif kind in ("not", "anyOf", "oneOf"):
        what = "is not allowed"
    elif kind in ("declared", "same", "unique"):
        what = error.message
        remedy = str(error.cause or remedy)
    elif kind == "format":
        what = str(error.cause)
    elif kind == "pattern" and isinstance(instance, str):
        what = f"{quoted(instance)} does not match the required format"
    else:
        what = f"does not meet the rule `{kind}`"
    yield place, Problem(file, place, what, remedy)


def remedy_of(error: Any, rules: Mapping[str, Any]) -> str:
    """The remedy closest to the rule that failed, on the path from the schema's root."""
    node: Any = rules
    remedy = rules.get("remedy", "")
    for part in error.absolute_schema_path:
        name = node.get("$ref") if isinstance(node, Mapping) and part not in node else ""
        if name:  # jsonschema's paths leave $ref out
            node = rules
            for step in name.split("/")[1:]:
                node = node[step]
            remedy = node.get("remedy", remedy)
        node = node[part]
        if isinstance(node, Mapping):
            remedy = node.get("remedy", remedy)
    return remedy


def type_name(value: Any) -> str:
    names = {bool: "boolean", str: "string", dict: "object", list: "array", int: "integer", float: "number"}
    return TYPES[names.get(type(value), "null")]
