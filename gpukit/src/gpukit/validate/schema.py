"""Problems found by a JSON schema, with the remedy that the schema states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpukit.validate.problem import MISSING, Problem, quoted


def schema_problems(file: str, error: Any, rules: Mapping[str, Any]) -> Iterator[Problem]:
    """An error of jsonschema as problems, with the remedy in the schema; values are not printed."""
    place = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.absolute_path)
    remedy = remedy_of(error, rules) or "restore it with `git checkout`, or run `./launch update`"
    kind, wanted, instance = error.validator, error.validator_value, error.instance
    if kind == "required":
        for name in wanted:
            if name not in instance:
                known = error.schema.get("properties", {}).get(name, {})
                yield Problem(file, f"{place}/{name}", MISSING, known.get("remedy", remedy))
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
    elif kind == "additionalProperties" and wanted is False:
        extra = sorted(set(instance) - set(error.schema.get("properties", {})))
        what = f"unknown: {', '.join(extra)}"
    elif kind in ("minLength", "minItems"):
        what = "is empty"
    elif kind in ("not", "anyOf", "oneOf"):
        what = "is not allowed"
    elif kind == "pattern" and isinstance(instance, str):
        what = f"{quoted(instance)} does not match the required format"
    else:
        what = f"does not meet the rule `{kind}`"
    yield Problem(file, place, what, remedy)


def remedy_of(error: Any, rules: Mapping[str, Any]) -> str:
    """The remedy closest to the rule that failed, on the path from the schema's root."""
    node: Any = rules
    remedy = rules.get("remedy", "")
    for part in error.absolute_schema_path:
        if isinstance(node, Mapping) and part not in node and "$ref" in node:  # jsonschema's paths leave $ref out
            node = rules["$defs"][node["$ref"].rpartition("/")[2]]
            remedy = node.get("remedy", remedy)
        node = node[part]
        if isinstance(node, Mapping):
            remedy = node.get("remedy", remedy)
    return remedy


def type_name(value: Any) -> str:
    names = {bool: "boolean", str: "string", dict: "object", list: "array", int: "integer", float: "number"}
    return names.get(type(value), "null")
