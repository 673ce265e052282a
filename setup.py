"""What pyproject.toml cannot express: `configs/` is shipped as the data of `fsl_basesel`."""

from setuptools import find_packages, setup

CONFIGS = "fsl_basesel.configs"

setup(
    packages=[
        *find_packages(include=["fsl_basesel*", "lightning_modules*"]),
        CONFIGS,
        f"{CONFIGS}.reproduce",
    ],
    package_dir={CONFIGS: "configs"},
)
