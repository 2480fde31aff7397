// RUN: koila-opt %s --koila-peak-memory=threads=1 -o %t.same.mlir 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: koila-opt %s -o %t.plain.mlir
// RUN: diff %t.plain.mlir %t.same.mlir
// RUN: koila-opt %s --koila-peak-memory="threads=1 format=json output=%t.json" -o /dev/null
// RUN: FileCheck %s --check-prefix=JSON < %t.json
// RUN: koila-opt %s --batch B=1000 --koila-peak-memory=threads=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=LARGE
// RUN: koila-opt %s --koila-peak-memory="threads=1 budget=96KiB" -o /dev/null

// The report changes nothing; figures follow the value of the symbol.

// TEXT: koila: memory of 'forward', inference, cpu, 1 thread
// TEXT: batch {{ *}}B = 64
// TEXT: peak {{ *}}64.00 KiB (65,536 bytes)
// TEXT-NOT: not exact
// TEXT: at {{ *}}koila.tanh, net.py:7 (head)
// TEXT: parameters {{ *}}32.00 KiB
// TEXT: inputs {{ *}}16.00 KiB
// TEXT: outputs {{ *}}32.00 KiB
// TEXT: live at the peak:
// TEXT: 32.00 KiB output head tensor<64x128xf32> net.py:7 (head)
// TEXT: 32.00 KiB activation linear tensor<64x128xf32> net.py:6

// JSON-DAG: "peak_bytes": 65536
// JSON-DAG: "parameter_bytes": 32768
// JSON-DAG: "input_bytes": 16384
// JSON-DAG: "output_bytes": 32768
// JSON-DAG: "exact": true
// JSON-DAG: "schema": 1
// JSON-DAG: "threads": 1
// JSON-DAG: "symbol": "B"
// JSON-DAG: "value": 64
// JSON-DAG: "module": "head"
// JSON-DAG: "promise": null

// LARGE: peak {{ *}}1000.00 KiB (1,024,000 bytes)

module attributes {koila.symbols = [#koila.symbol<name = "B", value = 64, batch = true>]} {
  koila.param @w : tensor<128x64xf32> keys ["w"] strides [64, 1]
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x128xf32> {
    %w = koila.param.get @w : tensor<128x64xf32>
    %0 = koila.linear %x, %w : (tensor<?x64xf32>, tensor<128x64xf32>) -> tensor<?x128xf32> loc("net.py":6:1)
    // Python frames: the innermost one of the user's own file counts.
    %1 = koila.tanh %0 : (tensor<?x128xf32>) -> tensor<?x128xf32> loc(#head)
    return %1 : tensor<?x128xf32>
  }
}
#library = loc("/usr/lib/python3.11/site-packages/torch/nn/functional.py":100:1)
#user = loc("net.py":7:9)
#head = loc("head"(callsite(#library at #user)))
