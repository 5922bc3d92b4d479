"""How much disk space images take, with each layer counted once."""

from __future__ import annotations

import json
import re

from gpukit.host.project import Project

# Instructions that leave no layer behind, as `docker history` shows them.
METADATA = re.compile(
    r"(?:/bin/sh -c #\(nop\) +)?(?:ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|SHELL|STOPSIGNAL|"
    r"USER|VOLUME)\b|/bin/sh -c #\(nop\) +WORKDIR\b"  # the latter as Podman has it
)


def added(project: Project, images: list[str]) -> dict[str, int]:
    """For each image, the bytes of its layers that neither an image before it nor one that stays has.

    Images whose layers the engine does not tell are left out.
    """
    everything = project.engine.get("images", "--quiet", "--no-trunc").split()
    layers = of(project, [*images, *everything])
    chosen = {each for name in images for each in layers if each.startswith(f"sha256:{name}")}
    seen = {layer for each, its in layers.items() if each not in chosen for layer in its}
    found: dict[str, int] = {}
    for name in images:
        its = next((layers[each] for each in chosen if each.startswith(f"sha256:{name}")), [])
        sizes = history(project, name)
        if its and len(sizes) == len(its):
            found[name] = sum(size for layer, size in zip(its, sizes) if layer not in seen)
            seen.update(its)
    return found


def of(project: Project, images: list[str]) -> dict[str, list[str]]:
    """The layers of images, by the full id of the image, the base's first."""
    form = "--format={{.Id}}\t{{json .RootFS.Layers}}"
    _, output, _ = project.engine.call("image", "inspect", form, *dict.fromkeys(images))
    lines = [line.partition("\t") for line in output.splitlines() if line.startswith("sha256:")]
    return {identity: json.loads(layers) or [] for identity, _, layers in lines}


def history(project: Project, image: str) -> list[int]:
    """The bytes of the image's layers, the base's first."""
    form = "--format={{.Size}}\t{{.CreatedBy}}"
    _, output, _ = project.engine.call("history", "--no-trunc", "--human=false", form, image)
    steps = re.findall(r"(?m)^(\d+)\t(.*)$", output)
    return [int(size) for size, step in reversed(steps) if int(size) or not METADATA.match(step)]
