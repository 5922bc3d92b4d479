"""Problems found by a JSON schema, with the remedy that the schema states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpukit.project.messages import alike
from gpukit.validate.problem import RESTORE, Problem, quoted


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
        what = f"is {type_name(instance)} and must be {' or '.join(names)}"
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
    return names.get(type(value), "null")
