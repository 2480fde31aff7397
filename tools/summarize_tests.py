"""Prints the summary line of a lit run: `N passed, N failed, N skipped`.

Usage: summarize_tests.py RESULTS.json LIT_EXIT_CODE

Exits with 1 if a test failed, if none ran, or if lit itself failed.
"""

import json
import sys

PASSED = {"PASS", "FLAKYPASS", "XFAIL"}
SKIPPED = {"UNSUPPORTED", "SKIPPED"}
NOT_SELECTED = {"EXCLUDED"}


def main():
    results, lit_status = sys.argv[1], int(sys.argv[2])
    try:
        with open(results) as file:
            tests = json.load(file)["tests"]
    except FileNotFoundError:
        tests = []
    codes = [test["code"] for test in tests]
    codes = [code for code in codes if code not in NOT_SELECTED]
    passed = sum(code in PASSED for code in codes)
    skipped = sum(code in SKIPPED for code in codes)
    failed = len(codes) - passed - skipped
    if not passed and not failed:
        print("koila: error: no test ran", file=sys.stderr)
    elif lit_status and not failed:
        print(f"koila: error: lit failed with exit code {lit_status}",
              file=sys.stderr)
    sys.stderr.flush()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0 or passed == 0 or lit_status != 0)


if __name__ == "__main__":
    sys.exit(main())
