"""What a user meets first: the tour of the README, the container image, and a command that starts quickly.

No Docker engine runs here, so the image is put together by hand: the files that the Dockerfile copies, nothing else on
the path but the installed packages, and its own entry point and health check.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.jars import ROOT
from support.processes import ServerProcess, free_ports

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "docker-compose.yml").read_text()
PORT = "9092"


def instruction(name: str) -> list[str]:
    """The words of an instruction of the Dockerfile in its JSON form."""
    (found,) = re.findall(rf"^{name}\b[^\[\n]*(\[.*\])$", DOCKERFILE, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def python_path(tree: Path) -> dict[str, str]:
    """`tree` and the installed packages. With -S Python does not follow the link to the checkout."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join((str(tree), *site.getsitepackages()))}


class ImageProcess(ServerProcess):
    """The image's entry point and command, with a port and a data directory of the test's own."""

    def __init__(self, tree: Path) -> None:
        port, controller_port = free_ports(2)
        self.tree = tree
        barnabas, *entry = instruction("ENTRYPOINT")
        assert barnabas == "barnabas"
        settings = {
            "listeners": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "log.dirs": str(tree / "data"),
        }
        command = [sys.executable, "-S", "-m", "cli.main", *entry, *instruction("CMD")]
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        super().__init__("image", command, port, tree / "server.log", 30)

    def environment(self) -> dict[str, str]:
        return python_path(self.tree)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[ImageProcess]:
    for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            path = ROOT / source
            if path.is_dir():
                shutil.copytree(path, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, tmp_path)
    server = ImageProcess(tmp_path)
    try:
        yield server
    finally:
        server.close()


def compose_health_check() -> str:
    """The script that every service's health check is an alias of: the indented lines behind the `python -c`."""
    (script,) = re.findall(r"- -c\n    - \|\n((?: {6}.*\n)+)", COMPOSE)
    return "\n".join(line.strip() for line in script.splitlines())


@pytest.mark.parametrize("check", ["Dockerfile", "docker-compose.yml"])
def test_the_image_serves_and_its_health_check_tells(image: ImageProcess, check: str) -> None:
    script = instruction("HEALTHCHECK")[-1] if check == "Dockerfile" else compose_health_check()
    assert PORT in script
    command = [sys.executable, "-c", script.replace(PORT, str(image.port))]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0, "nothing runs yet"
    image.start()
    subprocess.run(command, check=True)
    assert image.terminate() == 0


def test_the_image_holds_what_the_ignore_file_lets_through() -> None:
    """`*` first, then exceptions: a COPY of anything else would fail the build."""
    let_through = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    copied = {word for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]}
    assert copied <= let_through


def test_a_broker_starts_without_the_pipeline() -> None:
    code = "import sys, cli.main; cli.main.parser('server-start'); print([m for m in sys.modules if 'pipeline' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_the_tour_of_the_readme(broker: BrokerProcess) -> None:
    (tour,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert "localhost:9092" in tour
    tour = tour.replace("localhost:9092", broker.bootstrap)
    done = subprocess.run([sys.executable, "-c", tour], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("b'castle'") == 10
