# Laid out as NVIDIA's PyTorch container is, on public images: torch in the system's own Python, a CPU build that calls
# itself a pre-release as NVIDIA's does; a constraint file for pip; compilers; user root, and `ubuntu` with uid 1000.
FROM ubuntu:24.04
RUN apt-get update && apt-get install -y --no-install-recommends \
        ca-certificates g++ git python-is-python3 python3-dev python3-pip \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_BREAK_SYSTEM_PACKAGES=1
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch<2.15" \
    && pip install --no-cache-dir numpy \
    && cd "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && was=$(echo torch-*.dist-info) && torch=$(echo "$was" | sed -E 's/torch-([0-9.]+).*/\1a0+standin.nv26.6/') \
    && mv "$was" "torch-$torch.dist-info" \
    && sed -i "s/^Version: .*/Version: $torch/" "torch-$torch.dist-info/METADATA" \
    && sed -i "s/^$was/torch-$torch.dist-info/" "torch-$torch.dist-info/RECORD" \
    && sed -i "s/^__version__ = .*/__version__ = '$torch'/" torch/version.py \
    && mkdir -p /etc/pip && pip freeze | grep -E '^(torch|numpy|sympy|networkx)==' > /etc/pip/constraint.txt
ENV PIP_CONSTRAINT=/etc/pip/constraint.txt
WORKDIR /workspace
CMD ["/bin/bash"]
