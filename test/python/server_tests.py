"""What forks of the process with PyTorch do (test/python_server.py), and what a new
process does: the same. FORKED and NEW are commands."""

import os
import shlex
import signal
import subprocess
import time

import pytest

COMMANDS = [shlex.split(os.environ[name]) for name in ("FORKED", "NEW")]
PROGRAMS = {
    "code": "import sys; print(sys.argv[1:], __name__); sys.exit(7)",
    "words": "import sys; sys.exit('no')",
    "input": "print(input()[::-1])",
    "exception": "import atexit; atexit.register(print, 'last'); 1 / 0",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "child": "import subprocess; print(subprocess.run('exit 3', shell=True).returncode)",
    "thread": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()",
    "folder": "import os; print(os.getcwd(), os.environ['WORD'], oct(os.umask(0)))",
    "script": "import pickle, torch\n"
    "class Net(torch.nn.Module):\n"
    "    def forward(self, x):\n"
    "        return x + 1\n"
    "print(torch.jit.script(Net()).code, pickle.dumps(Net()) is not None, __file__)",
    "module": "import multiprocessing\n"
    "class Answer:\n"
    "    pass\n"
    "def double(x):\n"
    "    answer = Answer()\n"
    "    answer.value = 2 * x\n"
    "    return answer\n"
    "if __name__ == '__main__':\n"
    "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
    "        print([answer.value for answer in pool.map(double, [1, 2])])",
}


def run(command, folder, text):
    done = subprocess.run(
        [*command, *text],
        cwd=folder,
        input="word\n",
        capture_output=True,
        text=True,
        env={**os.environ, "WORD": "of the caller"},
    )
    return done.returncode, done.stdout, done.stderr.splitlines()[-1:]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_does_what_a_new_process_does(name, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[name])
    forked, new = (run(command, tmp_path, [str(file), "a", "b"]) for command in COMMANDS)
    assert forked == new


def test_forks_have_pytorch():
    text = "import sys; print('torch' in sys.modules)"
    assert [run(command, "/", ["-c", text])[1] for command in COMMANDS] == ["True\n", "False\n"]


def test_other_variables_of_libraries_make_a_new_process():
    text = "import os, sys; print(os.environ['OMP_NUM_THREADS'], 'torch' in sys.modules)"
    done = subprocess.run(
        [*COMMANDS[0], "-c", text],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "13"},
    )
    assert done.stdout == "13 False\n"


def test_a_program_ends_with_its_caller(tmp_path):
    file = tmp_path / "process"
    text = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    caller = subprocess.Popen([*COMMANDS[0], "-c", text])
    until = time.monotonic() + 20
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < until
        time.sleep(0.01)
    program = int(file.read_text())
    assert program != caller.pid
    caller.send_signal(signal.SIGTERM)
    caller.wait()
    while is_there(program):
        assert time.monotonic() < until
        time.sleep(0.01)


def is_there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
