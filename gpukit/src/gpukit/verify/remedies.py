"""The one thing to do, where several checks say the same. Most of it is done on the host, outside this container."""

REBUILD = "Rebuild the image: on the host `./launch build`, in VS Code `Dev Containers: Rebuild Container`"
START = "Start the container with `./launch up`, or reopen it in VS Code: both use the flags of devcontainer.json"
UPDATE = "On the host: `copier update --trust`, and add this GPU to `also_on`"
DOCTOR = "On the host: `./launch doctor`"
