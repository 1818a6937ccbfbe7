"""The command as a whole: help, version, wrong usage, pipes, colours, completion."""

import contextlib
import errno
import os
import pty
import re
import subprocess
import sys

import click
import pytest

import rocketlake
from rocketlake.cli.main import COMMANDS, main
from rocketlake.files import ops as ops_module
from support import command
from support.store_builder import StoreBuilder

READING = ("info", "dump", "tail")


@pytest.fixture
def store(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=4000).records(5).write()


def imported_modules(*arguments):
    """The modules a fresh interpreter has loaded behind a program."""
    program = f"{arguments[0]}\nimport sys\nprint(*sys.modules, sep='\\n')"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ended.stdout.splitlines())


# --- help and version ------------------------------------------------------------------------


def test_help_lists_the_commands():
    ran = command.run("--help")
    assert ran.code == 0
    assert len(COMMANDS) > 15
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", ran.out, re.MULTILINE)
    assert command.run("-h").out == ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    ran = command.run(name, "--help")
    assert ran.code == 0
    assert f"Usage: rocketlake {name}" in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_help_of_its_command(name):
    found = main.get_command(click.Context(main), name)
    assert isinstance(found, click.Command)
    shown = command.run(name, "--help").out
    for option in found.params:
        if isinstance(option, click.Option):
            assert option.help, f"{option.name} has no help"
            assert max(option.opts, key=len) in shown


def test_options_of_dump_are_those_of_a_selection():
    ran = command.run("dump", "--help")
    for name in (
        *("--topic", "--queue", "--from-offset", "--to-offset", "--from-time", "--to-time"),
        *("--key", "--tag", "--sql", "--limit", "--body", "--json", "--log"),
        *("--commitlog", "--options"),
    ):
        assert name in ran.out


def test_help_says_what_a_time_without_a_zone_means():
    for name in ("dump", "grep", "export", "replay", "compact", "profile"):
        shown = " ".join(command.run(name, "--help").out.split())
        assert "(local unless it names a zone)" in shown


def test_version_names_the_kernel():
    ran = command.run("--version")
    assert ran.code == 0
    assert ran.out.startswith(f"rocketlake {rocketlake.__version__} ({rocketlake.KERNEL} kernel)")


def test_version_says_what_the_pure_kernel_means():
    ran = command.run_process("--version", env={"ROCKETLAKE_KERNEL": "pure"})
    assert ran.code == 0
    assert "(pure kernel): slow but complete" in ran.out


def test_unknown_kernel_is_one_line(store):
    for arguments in (["--version"], ["info", store]):
        ran = command.run_process(*arguments, env={"ROCKETLAKE_KERNEL": "fast"})
        assert ran.code == 2
        assert "Traceback" not in ran.err
        assert ran.problems[-1].endswith("must be auto, native or pure, not 'fast'")


def test_import_does_not_wait_for_numpy():
    modules = imported_modules("import rocketlake")
    assert "rocketlake" in modules
    assert "numpy" not in modules


@pytest.mark.parametrize("arguments", ["--help", "no-such-command"])
def test_help_does_not_wait_for_numpy(arguments):
    ran = command.run_process(arguments, options=("-X", "importtime"))
    assert ran.code == (0 if arguments == "--help" else 2)
    assert "rocketlake.cli.main" in ran.err
    assert "numpy" not in ran.err


# --- wrong usage -----------------------------------------------------------------------------


def assert_refused(ran, *texts):
    """Exit code 2, nothing on stdout, words instead of a traceback."""
    assert ran.code == 2, ran
    assert ran.out == ""
    assert "Traceback" not in ran.err
    for text in texts:
        assert text in ran.problems[-1]


@pytest.mark.parametrize("name", READING)
def test_path_that_is_not_there(name, tmp_path):
    ran = command.run(name, tmp_path / "gone")
    assert_refused(ran, "no store at", "there is no such directory")
    assert len(ran.problems) == 1


@pytest.mark.parametrize("name", READING)
def test_file_instead_of_a_directory(name, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    ran = command.run(name, tmp_path / "file")
    assert_refused(ran, "it is a file, not a directory")
    assert len(ran.problems) == 1


@pytest.mark.parametrize("name", READING)
def test_directory_that_is_no_store(name, tmp_path):
    ran = command.run(name, tmp_path)
    assert_refused(ran, "it has no commitlog directory")
    assert len(ran.problems) == 1


def forbid(monkeypatch, what):
    """Let the machine forbid one call, as it does for anyone but root."""

    def fail(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(ops_module.os, what, fail)


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize("what", ["scandir", "open"])
def test_store_that_may_not_be_read(name, what, store, monkeypatch):
    forbid(monkeypatch, what)
    ran = command.run(name, store)
    assert_refused(ran, "Permission denied")
    assert len(ran.problems) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_forbidden_store(store):
    store.chmod(0)
    try:
        assert_refused(command.run_process("info", store), "Permission denied")
    finally:
        store.chmod(0o700)


def test_commit_log_that_is_not_there(store):
    ran = command.run("dump", store, "--commitlog", store / "gone")
    assert_refused(ran, "no commit log at", "there is no such directory")
    ran = command.run("dump", store, "--commitlog", f"{store / 'commitlog'},{store / 'gone'}")
    assert_refused(ran, "no commit log at")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ('{"mappedFileSizeCommitLog": 12}', "given as 12, but the files of"),
        ('{"mappedFileSizeCommitLog": -1}', "mappedFileSizeCommitLog"),
        ('{"mappedFileSizeComitLog": 4000}', "did you mean 'mappedFileSizeCommitLog'?"),
        ('{"messageDelayLevel": "1x"}', "messageDelayLevel has '1x'"),
        ('{"messageDelayLevel": "²s"}', "messageDelayLevel has '²s'"),
        ("{", "options are no JSON object"),
        ("no-such-file.conf", "cannot be read"),
    ],
)
@pytest.mark.parametrize("name", READING)
def test_options_that_cannot_be_used(name, store, options, text):
    ran = command.run(name, store, "--options", options)
    assert_refused(ran, text)
    assert len(ran.problems) == 1


@pytest.mark.parametrize("name", ["info", "dump", "verify"])
def test_options_may_be_those_of_any_store(name, store, tmp_path):
    """A broker.conf serves every door: also keys that only a writer needs, RocketLake's too."""
    path = tmp_path / "broker.conf"
    path.write_text(
        "compatVersion=5.3\ndiskFreeRefuseBytes=1000\nflushDiskType=SYNC_FLUSH\n"
        "storeType=defaultRocksDB\nmappedFileSizeCommitLog=4000\n"
    )
    plain, given = command.run(name, store), command.run(name, store, "--options", path)
    assert (given.code, given.out) == (plain.code, plain.out), given.err
    path.write_text("diskFreeRefuseByte=1\n")
    assert_refused(
        command.run(name, store, "--options", path), "did you mean 'diskFreeRefuseBytes'?"
    )


def test_options_from_a_file(store, tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=a\nmappedFileSizeCommitLog=4000\n")
    ran = command.run("info", store, "--options", path, "--json")
    assert ran.code == 0, ran.err
    path.write_text("mappedFileSizeCommitLog=5000\n")
    assert_refused(command.run("info", store, "--options", path), "given as 5000")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["dump"],
        ["dump", "STORE", "--no-such-option"],
        ["dump", "STORE", "--limit", "-1"],
        ["dump", "STORE", "--limit", "x"],
        ["dump", "STORE", "--queue", "x"],
        ["dump", "STORE", "--body", "xml"],
        ["dump", "STORE", "--from-time", "yesterday"],
        ["tail", "STORE", "--interval", "0"],
        ["tail", "STORE", "--limit", "0"],
        ["tail", "STORE", "-n", "-1"],
        ["completion"],
        ["completion", "tcsh"],
        ["info", "STORE", "more"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(arguments, store):
    ran = command.run(*(store if part == "STORE" else part for part in arguments))
    assert ran.code == 2 or (not arguments and ran.code == 0)
    assert "Traceback" not in ran.err


def test_nothing_to_do_shows_help():
    ran = command.run()
    assert "Usage: rocketlake" in ran.out + ran.err


# --- pipes and terminals ---------------------------------------------------------------------


@pytest.mark.parametrize("form", ["--json", "--body=text"])
def test_closed_pipe_is_silent(tmp_path, form):
    builder = StoreBuilder(tmp_path, log_file_size=1 << 20, queue_file_units=5000)
    for number in range(3000):
        builder.record(body=b"%d" % number + b"x" * 100)
    root = builder.write()
    shell = f"{sys.executable} -m rocketlake dump {root} {form} | head -1"
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell], capture_output=True, timeout=60, check=False
    )
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stderr == b""


def on_a_terminal(arguments, *, stream="stdout", **env):
    """Run with one stream on a terminal; return what it and the other one were given."""
    main, terminal = pty.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: terminal}
    with subprocess.Popen(
        [*command.COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **env},
        **streams,
    ) as process:
        os.close(terminal)
        written = b""
        # Linux answers with an error when the other side of a terminal is closed.
        with contextlib.suppress(OSError):
            while part := os.read(main, 65536):
                written += part
        os.close(main)
        other = process.stderr if stream == "stdout" else process.stdout
        rest = other.read()
        assert process.wait(60) == 0, written + rest
    return written.decode(), rest.decode()


COLOUR = re.compile(r"\x1b\[[0-9;]*[34][0-9](;[0-9;]*)?m")


@pytest.mark.parametrize("name", ["info", "dump"])
def test_no_color_is_honoured(store, name):
    plain, _ = on_a_terminal([name, store], NO_COLOR="1")
    assert "T" in plain
    assert not COLOUR.search(plain)
    if name == "dump":
        assert "\x1b" not in plain
        assert "\x1b[1m" in on_a_terminal([name, store], NO_COLOR="")[0]


def test_progress_has_no_colour_either(store):
    bar, _ = on_a_terminal(["dump", store], stream="stderr", NO_COLOR="1")
    assert not COLOUR.search(bar)


@pytest.mark.parametrize("form", ["--json", "--body=text"])
def test_output_goes_to_the_pipe_while_a_bar_is_on_the_terminal(store, form):
    """`rocketlake dump STORE > file`, typed at a terminal: stderr shows the bar, nothing else."""
    bar, out = on_a_terminal(["dump", store, form], stream="stderr")
    lines = out.splitlines()
    assert len(lines) == (5 if form == "--json" else 6)
    assert "TOPIC" not in bar
    assert "queueId" not in bar


@pytest.mark.parametrize("name", ["info", "dump"])
def test_pipe_gets_no_escapes(store, name):
    ran = command.run_process(name, store)
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err
    assert "messages" not in ran.err, "a progress bar for nobody"


# --- completion ------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(shell):
    ran = command.run("completion", shell)
    assert ran.code == 0, ran.err
    assert "_ROCKETLAKE_COMPLETE" in ran.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_installed_below_home(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    printed = command.run("completion", shell).out
    ran = command.run("completion", shell, "--install")
    assert ran.code == 0, ran.err
    (written,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert "rocketlake" in written.name
    assert written.read_text().strip() == printed.strip()
    assert str(written) in ran.err


def test_completion_answers_without_numpy(tmp_path):
    """What the shell calls while one types; importing the commands would be felt."""
    env = {
        "_ROCKETLAKE_COMPLETE": "bash_complete",
        "COMP_WORDS": "rocketlake in",
        "COMP_CWORD": "1",
    }
    program = (
        "import sys\nfrom rocketlake.cli.main import main\n"
        "try:\n    main.main(prog_name='rocketlake')\n"
        "except SystemExit:\n    pass\n"
        "print('numpy' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert ended.stdout.splitlines() == ["plain,info", "False"], ended.stderr
