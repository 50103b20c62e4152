import subprocess
import sys

import pytest

from pagewire import __version__
from pagewire.cli import COMMANDS, main


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)


def test_without_a_command_it_shows_the_help_and_is_a_usage_error(capsys):
    assert main([]) == 2
    assert "usage: pagewire" in capsys.readouterr().out


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_version_is_the_packages(capsys, argument):
    assert main([argument]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_an_unknown_command_is_one_line_with_the_nearest_name(capsys):
    assert main(["srve"]) == 2
    assert capsys.readouterr().err == "pagewire: unknown command 'srve' (did you mean serve?)\n"


def test_a_wrong_flag_of_the_template_command_is_one_line(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["template", "show", "--no-such-flag"])
    assert exit_info.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_help_loads_no_heavy_module():
    code = (
        "import sys\n"
        "from pagewire.cli import main\n"
        "main(['--help'])\n"
        "print({'torch', 'transformers', 'aiohttp', 'zmq', 'asyncio'} & set(sys.modules), file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert result.stderr == "set()\n"
