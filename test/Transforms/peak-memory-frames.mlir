// RUN: koila-opt %s --koila-peak-memory="threads=1 format=json frames=true" -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --koila-peak-memory="threads=1 format=json frames=true mode=forward-with-grad" -o /dev/null 2>&1 | FileCheck %s
// RUN: koila-opt %s --koila-peak-memory="threads=1 format=json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=PLAIN

// All frames of an operation, innermost first, those of libraries among them.

// CHECK: "timeline": [
// CHECK: "frames": [
// CHECK-NEXT: {
// CHECK-NEXT: "file": "net.py",
// CHECK-NEXT: "function": "",
// CHECK-NEXT: "line": 6
// CHECK-NEXT: }
// CHECK-NEXT: ],
// CHECK: "op": "koila.exp"
// CHECK: "frames": [
// CHECK-NEXT: {
// CHECK-NEXT: "file": "/usr/lib/python3.11/site-packages/torch/nn/functional.py",
// CHECK-NEXT: "function": "tanh",
// CHECK-NEXT: "line": 100
// CHECK-NEXT: },
// CHECK-NEXT: {
// CHECK-NEXT: "file": "net.py",
// CHECK-NEXT: "function": "forward",
// CHECK-NEXT: "line": 7
// CHECK-NEXT: },
// CHECK-NEXT: {
// CHECK-NEXT: "file": "main.py",
// CHECK-NEXT: "function": "",
// CHECK-NEXT: "line": 3
// CHECK-NEXT: }
// CHECK-NEXT: ],
// CHECK: "module": "head"
// CHECK: "op": "koila.tanh"
// PLAIN: "timeline"
// PLAIN-NOT: "frames"

func.func @forward(%x: tensor<4x64xf32> {koila.name = "x"}) -> tensor<4x64xf32> {
  %0 = koila.exp %x : (tensor<4x64xf32>) -> tensor<4x64xf32> loc("net.py":6:1)
  %1 = koila.tanh %0 : (tensor<4x64xf32>) -> tensor<4x64xf32> loc(#head)
  return %1 : tensor<4x64xf32>
}
#library = loc("/usr/lib/python3.11/site-packages/torch/nn/functional.py":100:1)
#user = loc("net.py":7:9)
#outer = loc("main.py":3:1)
#head = loc("head"(callsite("tanh"(#library) at callsite("forward"(#user) at #outer))))
