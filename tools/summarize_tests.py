"""Prints the summary line of a lit run: `N passed, N failed, N skipped`.

Usage: summarize_tests.py RESULTS.json LIT_EXIT_CODE

Before it, where the time went by test file, against what a default run may
take. Exits with 1 if a test failed, if none ran, or if lit itself failed.
"""

import json
import sys

PASSED = {"PASS", "FLAKYPASS", "XFAIL"}
SKIPPED = {"UNSUPPORTED", "SKIPPED"}
NOT_SELECTED = {"EXCLUDED"}
# Of a default run on CORES cores, in minutes; docs/design/TestingGuide.md.
BUDGET, CORES = 14, 2
# Files that take less, in seconds, are added up.
SHORT = 20


def print_times(tests):
    """Seconds of each file, longest first, and of the run as a whole."""
    times = sorted(((test.get("elapsed") or 0, test["name"]) for test in tests), reverse=True)
    print("seconds by test file:")
    for seconds, name in times:
        if seconds >= SHORT:
            print(f"{seconds:8.1f}  {name.removeprefix('koila :: ')}")
    short = [seconds for seconds, _ in times if seconds < SHORT]
    print(f"{sum(short):8.1f}  {len(short)} files of less than {SHORT} s")
    total = sum(seconds for seconds, _ in times)
    print(
        f"{total:8.1f}  together, of {BUDGET * 60 * CORES}: on {CORES} cores "
        f"{total / 60 / CORES:.1f} minutes, of {BUDGET}"
    )


def main():
    results, lit_status = sys.argv[1], int(sys.argv[2])
    try:
        with open(results) as file:
            tests = json.load(file)["tests"]
    except FileNotFoundError:
        tests = []
    tests = [test for test in tests if test["code"] not in NOT_SELECTED]
    codes = [test["code"] for test in tests]
    passed = sum(code in PASSED for code in codes)
    skipped = sum(code in SKIPPED for code in codes)
    failed = len(codes) - passed - skipped
    if len(tests) > 1:
        print_times(tests)
    if not passed and not failed:
        print("koila: error: no test ran", file=sys.stderr)
    elif lit_status and not failed:
        print(f"koila: error: lit failed with exit code {lit_status}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0 or passed == 0 or lit_status != 0)


if __name__ == "__main__":
    sys.exit(main())
