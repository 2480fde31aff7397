// Where the figures of operators hold is a table: another machine than those in
// its rows makes a figure inexact, with the reason.

// RUN: split-file %s %t
// RUN: koila-opt %t/forward.mlir --koila-peak-memory='threads=2 isa=avx512_core_bf16' -o /dev/null 2>&1 | FileCheck %s --check-prefix=MEASURED
// MEASURED: memory of 'forward', inference, cpu, 2 threads, avx512_core_bf16, torch 2.13.0
// MEASURED-NOT: not exact

// A newer instruction set that adds nothing for float32.
// RUN: koila-opt %t/forward.mlir --koila-peak-memory='threads=2 isa=avx512_core_amx' -o /dev/null 2>&1 | FileCheck %s --check-prefix=AMX
// AMX: memory of 'forward', inference, cpu, 2 threads, avx512_core_amx, torch 2.13.0
// AMX-NOT: not exact

// One that was not measured, or more threads: a bound for convolutions, nothing
// new for others.
// RUN: koila-opt %t/forward.mlir --koila-peak-memory='threads=2 isa=avx2_vnni_2' -o /dev/null 2>&1 | FileCheck %s --check-prefix=BOUND
// RUN: koila-opt %t/forward.mlir --koila-peak-memory='threads=64 isa=avx512_core_bf16' -o /dev/null 2>&1 | FileCheck %s --check-prefix=BOUND
// BOUND: not exact
// BOUND: not exact: koila.conv2d, {{.*}}: convolutions were not measured on this instruction set or with so many threads
// BOUND-NOT: not exact

// Another processor, or another PyTorch: no row.
// RUN: koila-opt %t/forward.mlir --koila-peak-memory='threads=2 isa=generic' -o /dev/null 2>&1 | FileCheck %s --check-prefix=GENERIC
// GENERIC: not exact: koila.relu, {{.*}}: the instruction set of this processor is none that koila knows
// RUN: koila-opt %t/forward.mlir --koila-peak-memory='threads=2 isa=avx512_core torch=2.14.1' -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE -DWHERE="'avx512_core' with 2 threads and torch 2.14.1"
// NONE: not exact: koila.relu, {{.*}}: the table of workspaces has no row for aten::relu of float32, contiguous, on [[WHERE]]; koila-run --calibrate measures one
// Of a reason that many share, the first places are named.
// NONE: not exact: 2 more operations: the table of workspaces has no row for aten::relu

// A table of the user's goes first; what it does not know is as without it.
// RUN: koila-opt %t/program.mlir --koila-peak-memory='threads=2 isa=avx2_vnni_2 workspaces=%t/here.json' -o /dev/null 2>&1 | FileCheck %s --check-prefix=MINE
// RUN: koila-opt %t/program.mlir --koila-peak-memory='threads=3 isa=avx2_vnni_2 workspaces=%t/here.json' -o /dev/null 2>&1 | FileCheck %s --check-prefix=BOUND
// MINE: memory of 'forward'
// MINE-NOT: not exact

// A doubt of the rule itself stays, whatever the table says.
// RUN: koila-opt %t/doubt.mlir --koila-peak-memory='threads=2 isa=avx2_vnni_2 workspaces=%t/here.json' -o /dev/null 2>&1 | FileCheck %s --check-prefix=DOUBT
// DOUBT: not exact: koila.conv2d, {{.*}}: the convolution's workspace is an upper bound for this case on 'avx2_vnni_2'

// RUN: not koila-opt %t/program.mlir --koila-peak-memory='workspaces=%t/bad.json' -o /dev/null 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: not koila-opt %t/program.mlir --koila-tile-batch='tile=2 workspaces=%t/bad.json' -o /dev/null 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: error: workspaces: '{{.*}}bad.json' is no table of workspaces: expected exact, bound or unknown at table.rows[0].figure
// RUN: not koila-opt %t/program.mlir --koila-peak-memory='workspaces=%t/missing.json' -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: workspaces: cannot read '{{.*}}missing.json': No such file or directory

//--- forward.mlir
func.func @forward(%x: tensor<4x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<4x16x6x6xf32> {
  %0 = koila.relu %x : (tensor<4x16x8x8xf32>) -> tensor<4x16x8x8xf32>
  %1 = koila.relu %0 : (tensor<4x16x8x8xf32>) -> tensor<4x16x8x8xf32>
  %2 = koila.relu %1 : (tensor<4x16x8x8xf32>) -> tensor<4x16x8x8xf32>
  %3 = koila.relu %2 : (tensor<4x16x8x8xf32>) -> tensor<4x16x8x8xf32>
  %4 = koila.relu %3 : (tensor<4x16x8x8xf32>) -> tensor<4x16x8x8xf32>
  %5 = koila.relu %4 : (tensor<4x16x8x8xf32>) -> tensor<4x16x8x8xf32>
  %6 = koila.relu %5 : (tensor<4x16x8x8xf32>) -> tensor<4x16x8x8xf32>
  %7 = koila.conv2d %6, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<4x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<4x16x6x6xf32>
  return %7 : tensor<4x16x6x6xf32>
}

//--- program.mlir
func.func @forward(%x: tensor<4x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<4x16x6x6xf32> {
  %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<4x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<4x16x6x6xf32>
  return %0 : tensor<4x16x6x6xf32>
}

//--- doubt.mlir
func.func @forward(%x: tensor<4x16x8x8xf16>, %w: tensor<16x16x3x3xf16>) -> tensor<4x16x6x6xf16> {
  %0 = koila.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<4x16x8x8xf16>, tensor<16x16x3x3xf16>) -> tensor<4x16x6x6xf16>
  return %0 : tensor<4x16x6x6xf16>
}

//--- here.json
{"schema": 1,
 "rows": [{"op": ["aten::conv*"], "isa": ["avx2_vnni_2"], "threads": [2, 2],
           "figure": "exact", "calls": 96, "source": "measured"}]}

//--- bad.json
{"schema": 1, "rows": [{"op": ["aten::conv*"], "figure": "roughly"}]}
