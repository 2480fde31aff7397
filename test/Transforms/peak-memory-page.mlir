// RUN: koila-opt %s --batch B=64 --koila-peak-memory="threads=1 format=html output=%t.html" -o /dev/null
// RUN: koila-opt %s --batch B=64 --koila-peak-memory="threads=1 format=json output=%t.json" -o /dev/null
// RUN: %python %S/Inputs/check_page.py %t.html %t.json | FileCheck %s
// RUN: FileCheck %s --check-prefix=JSON < %t.json

// CHECK: 3 storages, 3 entries

// Who frees a tensor last, and what is alive by line and module.
// JSON: "by_kind": [
// JSON: "by_line": [
// JSON: "name": "net.py:7",
// JSON: "by_module": [
// JSON: "name": "</script>",
// JSON: "storages": [
// JSON: "freed_by": {
// JSON-NEXT: "location": {
// JSON: "op": "koila.tanh"

module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
  func.func @forward(%x: tensor<?x64xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 64]>}) -> tensor<?x64xf32> {
    %0 = koila.exp %x : (tensor<?x64xf32>) -> tensor<?x64xf32> loc("net.py":6:1)
    %1 = koila.tanh %0 : (tensor<?x64xf32>) -> tensor<?x64xf32> loc(#head)
    %2 = koila.relu %1 : (tensor<?x64xf32>) -> tensor<?x64xf32> loc("net.py":8:1)
    return %2 : tensor<?x64xf32>
  }
}
#library = loc("/usr/lib/python3.11/site-packages/torch/nn/functional.py":100:1)
#user = loc("net.py":7:9)
#head = loc("</script>"(callsite(#library at #user)))
