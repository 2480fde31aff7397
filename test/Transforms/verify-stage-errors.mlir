// RUN: not koila-opt %s --koila-verify-stage=stage=imported 2>&1 | FileCheck %s --check-prefix=IMPORTED
// RUN: not koila-opt %s --koila-verify-stage=stage=inferred 2>&1 | FileCheck %s --check-prefix=INFERRED
// RUN: not koila-opt %s --koila-verify-stage=stage=tiled 2>&1 | FileCheck %s --check-prefix=TILED
// RUN: not koila-opt %s --koila-verify-stage=stage=emittable 2>&1 | FileCheck %s --check-prefix=EMITTABLE
// RUN: not koila-opt %s --koila-verify-stage=stage=other 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// One program that breaks the promise of every stage.

// IMPORTED: error: argument 1 has no 'koila.name'; import gives names
// INFERRED: error: 'koila.relu' op has a result of unknown type 'tensor<*x!koila.any>'; what comes out of lists and objects that change stays unknown
// TILED: error: is tiled, but states no assumption for its guard; --koila-tile-batch should have written them
// EMITTABLE: error: 'arith.remsi' op cannot be written as TorchScript; run passes that leave koila, arith, scf and tensor slices only
// UNKNOWN: error: unknown stage=other; use imported, inferred, tiled or emittable
func.func @forward(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>}, %n: index)
    attributes {koila.tiled = {tile = 4 : i64, guard = "warn", batch_symbol = "B"}} {
  %0 = arith.remsi %n, %n : index
  %1 = koila.relu %x : (tensor<?x4xf32>) -> tensor<*x!koila.any>
  return
}
