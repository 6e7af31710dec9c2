"""The pytest plugin: which target the suite runs against, and how long.

    pytest --pyargs properties.suite --target kvcore
    pytest --pyargs properties.suite --target my_package.adapter:make --profile nightly

A pytest11 entry point where the package is installed; conftest.py names it in a checkout. The suite's tests take the
fixtures `target_name`, `target_factory`, `kernels` and `profile`.

Also imports: pytest, properties.attention.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from .operations import Configuration
from .target import TargetFactory
from .targets import UnknownTarget, load, load_kernels

if TYPE_CHECKING:
    from .attention.kernels import Kernels

PROFILES = ("commit", "nightly", "soak")

NIGHTLY = "slow, and another test stands for it: this project's own runs leave it to the night"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kv-cache properties")
    group.addoption(
        "--target",
        default="kvcore",
        help="core under test: a file of properties/targets, or package.module:factory (default: kvcore)",
    )
    group.addoption(
        "--kernels",
        default="",
        help="kernels under test: NAME_kernels.py in properties/targets, or package.module:factory (default: kvcore's "
        "with the target kvcore, none with another)",
    )
    group.addoption(
        "--profile",
        default="commit",
        choices=PROFILES,
        help="how long the state machines run: commit (seconds), nightly (minutes), soak (hours)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"nightly: {NIGHTLY}")
    # A target in the folder that pytest was started in is found, as `python -m pytest` and `python -m fuzz` do.
    folder = str(config.invocation_params.dir)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        load(config.getoption("--target"))(Configuration())
    except (UnknownTarget, ImportError) as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header(config: pytest.Config) -> str:
    return f"kv-cache properties: target {config.getoption('--target')}, profile {config.getoption('--profile')}"


@pytest.fixture(scope="session")
def target_name(request: pytest.FixtureRequest) -> str:
    """What --target said."""
    name: str = request.config.getoption("--target")
    return name


@pytest.fixture(scope="session")
def target_factory(target_name: str) -> TargetFactory:
    """Makes a fresh target for a configuration."""
    return load(target_name)


@pytest.fixture(scope="session")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """The kernels under test, in Triton's interpreter; skips where there are none, and where torch or Triton is not
    installed."""
    name = request.config.getoption("--kernels")
    if not name and request.config.getoption("--target") != "kvcore":
        pytest.skip("another target than kvcore is tested, and no --kernels are named")
    for needed in ("torch", "triton"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: no kernels are checked")
    from .attention.interpret import prepare

    prepare()
    try:
        return load_kernels(name or "kvcore")()
    except UnknownTarget as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session")
def profile(request: pytest.FixtureRequest) -> str:
    """What --profile said."""
    name: str = request.config.getoption("--profile")
    return name
