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
    "git": "gitpython",
    "hydra": "hydra-core",
    "mpl_toolkits": "matplotlib",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pynvml": "nvidia-ml-py",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "z3": "z3-solver",
}
