"""Remedies that several checks share. Most are commands on the host, outside this container."""

BUILD = (
    "On the host `./launch build`, or `Dev Containers: Rebuild Container` in VS Code, which does not rebuild by itself"
)
REBUILD = "Rebuild the image: on the host `./launch build`, in VS Code `Dev Containers: Rebuild Container`"
START = "Start the container with `./launch up`, or reopen it in VS Code: both use the flags of devcontainer.json"
UPDATE = "On the host: `./launch update --answers`, and add this GPU to `also_on`"
DOCTOR = "On the host: `./launch doctor`"
