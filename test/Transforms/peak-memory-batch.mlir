// RUN: koila-opt %s --koila-peak-memory="function=head threads=1" -o /dev/null 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: koila-opt %s --koila-peak-memory="function=head threads=1 format=json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=JSON
// RUN: koila-opt %s --function head --batch B=8 --koila-peak-memory="function=head threads=1 budget=2000" -o /dev/null 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: koila-opt %s --function head --batch B=8 --koila-peak-memory="function=head threads=1 budget=2000 format=json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=LIMITJSON
// RUN: koila-opt %s --koila-peak-memory="function=head threads=1 batches=0 format=json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: koila-opt %s --koila-peak-memory="function=fixed threads=1 batches=10" -o /dev/null 2>&1 | FileCheck %s --check-prefix=FIXED
// RUN: koila-opt %s --function fixed --batch B=8 --koila-peak-memory="function=fixed threads=1 budget=64" -o /dev/null 2>&1 | FileCheck %s --check-prefix=ANY
// RUN: not koila-opt %s --koila-peak-memory="function=head batches=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// No value is needed for the curve. A [B, B] head is quadratic, and takes over
// from what is linear where it is larger: 4 * (40 B + 10 B) against
// 4 * (10 B + B B).

// TEXT: peak {{ *}}needs a value for symbol 'B' (--batch B=N)
// TEXT: by batch {{ *}}200 B bytes, B = 1..40
// TEXT-NEXT: {{^ *}}40 B + 4 B² bytes, B = 41..64

// JSON: "batch_pieces": [
// JSON-NEXT: {
// JSON-NEXT: "coefficients": [
// JSON-NEXT: 0,
// JSON-NEXT: 200,
// JSON-NEXT: 0
// JSON-NEXT: ],
// JSON-NEXT: "from": 1,
// JSON-NEXT: "to": 40
// JSON: "max_batch": null

// LIMIT: largest batch 10 within the budget
// LIMITJSON: "max_batch": 10

// NONE: "batch_pieces": [],

// FIXED: by batch {{ *}}64 bytes, B = 1..10
// ANY: largest batch any fits the budget

// NEGATIVE: error: batches=-1 is negative

// For few samples a branch decides the peak, and data decide the branch: where the
// report is exact, the curve has none of them.
// RUN: koila-opt %s --function branch --batch B=64 --koila-peak-memory="function=branch threads=1" -o /dev/null 2>&1 | FileCheck %s --check-prefix=BRANCH
// BRANCH: peak {{ *}}2.50 KiB (2,560 bytes){{$}}
// BRANCH-NOT: B = 1..
// BRANCH: live at the peak

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @head(%x: tensor<?x10xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 10]>},
                  %w: tensor<10x40xf32> {koila.name = "w"},
                  %v: tensor<40x10xf32> {koila.name = "v"}) -> tensor<?x?xf32> {
    %0 = koila.mm %x, %w : (tensor<?x10xf32>, tensor<10x40xf32>) -> tensor<?x40xf32>
    %1 = koila.mm %0, %v : (tensor<?x40xf32>, tensor<40x10xf32>) -> tensor<?x10xf32>
    %2 = koila.t %x : (tensor<?x10xf32>) -> tensor<10x?xf32>
    %3 = koila.mm %1, %2 : (tensor<?x10xf32>, tensor<10x?xf32>) -> tensor<?x?xf32>
    return %3 : tensor<?x?xf32>
  }
  func.func @fixed(%x: tensor<?x4xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 4]>},
                   %y: tensor<16xf32> {koila.name = "y"}) -> tensor<16xf32> {
    %0 = koila.relu %y : (tensor<16xf32>) -> tensor<16xf32>
    return %0 : tensor<16xf32>
  }

  func.func @branch(%x: tensor<?x10xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 10]>},
                    %y: tensor<100xf32>, %p: i1) -> tensor<?x10xf32> {
    scf.if %p {
      %0 = koila.sin %y : (tensor<100xf32>) -> tensor<100xf32>
    }
    %1 = koila.relu %x : (tensor<?x10xf32>) -> tensor<?x10xf32>
    return %1 : tensor<?x10xf32>
  }
}
