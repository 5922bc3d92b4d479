"""Which packages provide which modules."""

# Packages whose modules have other names, as their own documentation says (2026-11-26).
PACKAGES = {
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",  # which has it since Python 3.12 does not
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "gitpython",
    "hydra": "hydra-core",
    "ignite": "pytorch-ignite",
    "mpl_toolkits": "matplotlib",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pynvml": "nvidia-ml-py",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "whisper": "openai-whisper",
    "yaml": "pyyaml",
    "z3": "z3-solver",
}
# Modules that need a package that their own package does not install.
# https://docs.pytorch.org/docs/2.9/tensorboard.html (2026-11-26)
NEEDS = {"torch.utils.tensorboard.": "tensorboard"}
# Modules that several packages have a part of, or whose name the package index gives to another package: no name of a
# package follows from an import. https://packaging.python.org/en/latest/guides/packaging-namespace-packages/,
# https://github.com/openai/CLIP#usage (2026-11-26)
SHARED = ("azure", "clip", "google", "nvidia", "ruamel")
