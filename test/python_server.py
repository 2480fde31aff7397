"""Runs the Python programs of tests in forks of one process that has PyTorch.

Usage: python_server.py SOCKET PID            serves until the process PID has ended
       python -I -S python_server.py --ask SOCKET [ARGUMENTS OF PYTHON...]

Importing PyTorch takes more time than most tests do after it. `--ask` behaves as
`python ARGUMENTS` does: same folder, environment, files, exit code; what it starts
ends with it. Where a fork would be another thing than a new process (options of the
interpreter, other variables that libraries read when they are loaded) or nobody
answers, it becomes one. SOCKET is a name without a file (abstract, Linux).
"""

import array
import contextlib
import json
import os
import socket
import sys

# Read when a library is loaded, so that a fork would not see another value.
LOADED = ("KMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "ONEDNN_", "PYTHON", "TORCH", "PYTORCH_")


def get_loaded(environment: dict[str, str]) -> dict[str, str]:
    return {key: environment[key] for key in sorted(environment) if key.startswith(LOADED)}


# ----------------------------------------------------------------------------
# The client: without imports that take time
# ----------------------------------------------------------------------------


def ask(name: str, arguments: list[str]) -> int:
    with contextlib.suppress(OSError):
        status = _ask(name, arguments)
        if status is not None:
            return status
    os.execv(sys.executable, [sys.executable, *arguments])


def _ask(name: str, arguments: list[str]) -> int | None:
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-m", "-c")):
        return None
    request = {
        "arguments": arguments,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "umask": os.umask(0),
    }
    os.umask(request["umask"])
    data = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect("\0" + name)
        files = array.array("i", [0, 1, 2])
        server.sendmsg(
            [len(data).to_bytes(8, "little")],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)],
        )
        server.sendall(data)
        answer = b""
        while not answer.endswith(b"\n"):
            part = server.recv(64)
            if not part:
                # The fork died of a signal that ended its guard, too.
                return 1
            answer += part
    status = int(answer)
    if status == REFUSED:
        return None
    if status < 0:
        # As the program ended.
        import signal

        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


REFUSED = 1000

if __name__ == "__main__" and sys.argv[1:2] == ["--ask"]:
    sys.exit(ask(sys.argv[2], sys.argv[3:]))

# ----------------------------------------------------------------------------
# The server
# ----------------------------------------------------------------------------

import select  # noqa: E402
import signal  # noqa: E402
import struct  # noqa: E402


def serve(name: str, until: int) -> None:
    own = get_loaded(dict(os.environ))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(64)
        # Clients wait meanwhile.
        import torch  # noqa: F401

        # Guards are not waited for.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while is_running(until):
            if not select.select([listener], [], [], 2)[0]:
                continue
            client, _ = listener.accept()
            with client:
                _, user, _ = struct.unpack(
                    "3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                )
                if user == os.getuid() and not os.fork():
                    listener.close()
                    guard(client, own)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def guard(client: socket.socket, own: dict[str, str]) -> None:
    """Stands between a client and its program: ends one with the other."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        size, files, _, _ = socket.recv_fds(client, 8, 3)
        length, data = int.from_bytes(size, "little"), b""
        while len(data) < length:
            data += client.recv(length - len(data))
        request = json.loads(data)
        if get_loaded(request["environment"]) != own:
            client.sendall(b"%d\n" % REFUSED)
            os._exit(0)
        program = os.fork()
        if not program:
            os.setsid()
            client.close()
            be_python(request, files)
        ended = os.pidfd_open(program)
        ready = select.select([ended, client], [], [])[0]
        if ended not in ready:
            os.killpg(program, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
        client.sendall(b"%d\n" % status)
    finally:
        os._exit(0)


def be_python(request: dict, files: list[int]) -> None:
    import atexit
    import runpy
    import threading
    import traceback

    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (until the end of the process)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    del sys.modules["__main__"]
    kind, *rest = request["arguments"]
    status: object = 0
    try:
        if kind == "-m":
            sys.argv = rest
            sys.path[0] = os.getcwd()
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path[0] = ""
            import types

            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(rest[0], "<string>", "exec"), main.__dict__)
        else:
            sys.argv = [kind, *rest]
            sys.path[0] = os.path.dirname(os.path.abspath(kind))
            run_script(kind)
    except SystemExit as end:
        status = end.code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        status = 1
    if status is None:
        status = 0
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    # As the interpreter ends.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)


def run_script(path: str) -> None:
    """As `python PATH`: its module stays `__main__` until the process ends."""
    import importlib.machinery
    import types

    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=os.path.abspath(path), __builtins__=__builtins__)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    # The second name is that of multiprocessing, in what its children send back.
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
