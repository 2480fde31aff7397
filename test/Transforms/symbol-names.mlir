// A symbol is the user's whatever its name is: with names that analyses give
// their own symbols, facts, figures and tiled programs are those of other names.

// RUN: sed -e 's/BATCH/B/g' -e 's/ROWS/S/g' %s > %t.plain.mlir
// RUN: koila-opt %t.plain.mlir --koila-print-facts -o /dev/null > %t.plain.facts 2>&1
// RUN: koila-opt %t.plain.mlir --koila-peak-memory="threads=1 isa=avx2" -o /dev/null > %t.plain.peak 2>&1
// RUN: koila-opt %t.plain.mlir --koila-infer-shapes --koila-tile-batch="tile=4 guard=raise" > %t.plain.tiled

// RUN: sed -e 's/BATCH/_0/g' -e 's/ROWS/_00/g' %s > %t.under.mlir
// RUN: koila-opt %t.under.mlir --koila-print-facts -o /dev/null 2>&1 | sed -e 's/\b_0\b/B/g' -e 's/\b_00\b/S/g' -e 's/under\.mlir/plain.mlir/' | diff %t.plain.facts -
// RUN: koila-opt %t.under.mlir --koila-peak-memory="threads=1 isa=avx2" -o /dev/null 2>&1 | sed -e 's/\b_0\b/B/g' -e 's/under\.mlir/plain.mlir/' | diff %t.plain.peak -
// RUN: koila-opt %t.under.mlir --koila-infer-shapes --koila-tile-batch="tile=4 guard=raise" | sed -e 's/\b_0\b/B/g' -e 's/22_0\b/22B/g' -e 's/\b_00\b/S/g' -e 's/under\.mlir/plain.mlir/g' | diff %t.plain.tiled -

// RUN: FileCheck %s --check-prefix=PEAK --input-file=%t.plain.peak
// PEAK: peak {{ *}}{{[1-9]}}
// PEAK-NOT: not exact

// Without a value for it, the figure is missing, and not zero.
// RUN: sed -e 's/ value = 8,//' %t.under.mlir | koila-opt --koila-peak-memory="threads=1 isa=avx2" -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: needs a value for symbol '_0'

module attributes {koila.symbols = [#koila.symbol<name = "BATCH", value = 8, batch = true>, #koila.symbol<name = "ROWS", value = 6>]} {
func.func @rows(%x: tensor<?x?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[BATCH, ROWS, 4]>}) -> tensor<?x?xf32> {
  %0 = koila.relu %x : (tensor<?x?x4xf32>) -> tensor<?x?x4xf32>
  %1 = koila.transpose_int %0 {dim0 = 1 : i64, dim1 = 2 : i64} : (tensor<?x?x4xf32>) -> tensor<?x4x?xf32>
  %2 = koila.flatten_using_ints %0 {start_dim = 1 : i64, end_dim = -1 : i64} : (tensor<?x?x4xf32>) -> tensor<?x?xf32>
  %3 = koila.cat %2, %2 {dim = 1 : i64} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %4 = koila.flatten_using_ints %1 {start_dim = 1 : i64, end_dim = -1 : i64} : (tensor<?x4x?xf32>) -> tensor<?x?xf32>
  %5 = koila.cat %3, %4 {dim = 1 : i64} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %5 : tensor<?x?xf32>
}
}
