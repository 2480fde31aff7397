"""Calibrates this machine and, as a control, calibrates it as another one.

Usage: check_calibration.py KOILA_RUN KOILA_OPT PREFIX
"""

import json
import pathlib
import subprocess
import sys

PROGRAM = """
func.func @forward(%x: tensor<4x16x8x8xf32>, %w: tensor<16x16x3x3xf32>)
    -> tensor<4x16x6x6xf32> {
  %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>,
      padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
      groups = 1 : i64}
    : (tensor<4x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<4x16x6x6xf32>
  return %0 : tensor<4x16x6x6xf32>
}
"""


def calibrate(tool, output, *more):
    done = subprocess.run(
        [tool, "--calibrate", output, "--calls", "10", "--threads", "2", *more],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "calibrating aten::conv*, float32" in done.stderr, done.stderr
    return json.loads(pathlib.Path(output).read_text())["rows"]


def is_exact(tool, program, options):
    done = subprocess.run(
        [tool, program, f"--koila-peak-memory=format=json {options}", "-o", "/dev/null"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr)["exact"]


def main():
    run, opt, prefix = sys.argv[1:]
    rows = calibrate(run, prefix + ".here.json")
    isa = rows[0]["isa"][0]
    print(f"{len(rows)} rows for {isa}")
    assert len(rows) > 8, rows
    for row in rows:
        # With AMX what bfloat16 holds depends on the caches.
        is_known = "amx" not in isa or row["dtype"] != ["bfloat16"]
        assert row["figure"] == "exact" or not is_known, row
        assert row["calls"] >= 16 and row["threads"] == [2, 2], row
    assert any("aten::conv*" in row["op"] for row in rows)

    # The rules of another instruction set are seen not to hold here.
    other = "avx2" if isa.startswith("avx512") else "avx512_core"
    lies = calibrate(run, prefix + ".lie.json", "--isa", other)
    found = [
        row
        for row in lies
        if "aten::conv*" in row["op"] and row["dtype"] == ["float32"] and row["figure"] != "exact"
    ]
    assert found and "differ" in found[0]["why"], lies
    print("as", other + ":", found[0]["why"])

    # The table makes a machine known that koila has no row for.
    program = prefix + ".mlir"
    pathlib.Path(program).write_text(PROGRAM)
    for row in rows:
        row["isa"] = ["avx2_vnni_2"]
    table = prefix + ".vnni.json"
    pathlib.Path(table).write_text(json.dumps({"schema": 1, "rows": rows}))
    machine = "threads=2 isa=avx2_vnni_2"
    assert not is_exact(opt, program, machine)
    assert is_exact(opt, program, f"{machine} workspaces={table}")
    assert not is_exact(opt, program, f"threads=3 isa=avx2_vnni_2 workspaces={table}")


if __name__ == "__main__":
    main()
