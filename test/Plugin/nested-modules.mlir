// Functions of modules in the module are inferred, too; their memory is asked
// for by a pipeline that names the module. No report is written over another.

// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --pass-pipeline='builtin.module(koila-infer-shapes)' | FileCheck %s
// RUN: not %mlir-opt --load-dialect-plugin=%plugin %s --pass-pipeline='builtin.module(koila-peak-memory)' 2>&1 | FileCheck %s --check-prefix=OUTER
// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --mlir-disable-threading --pass-pipeline='builtin.module(builtin.module(koila-peak-memory{threads=1}))' -o /dev/null 2>&1 | FileCheck %s --check-prefix=PEAK
// RUN: not %mlir-opt --load-dialect-plugin=%plugin %s --pass-pipeline='builtin.module(builtin.module(koila-peak-memory{output=%t.txt}))' 2>&1 | FileCheck %s --check-prefix=TWICE

// CHECK: gpu.module @kernels
// CHECK: koila.relu {{.*}} -> tensor<4xf32>
// CHECK: module @first
// CHECK: koila.relu {{.*}} -> tensor<4xf32>
// CHECK: module @second
// CHECK: koila.relu {{.*}} -> tensor<8xf32>

// OUTER: error: the module has no function
// OUTER: note: 'k' is in a module of its own: name it in the pipeline, as builtin.module(builtin.module(...))

// PEAK: memory of 'first::f'
// PEAK: peak {{ *}}16 bytes
// PEAK: memory of 'second::f'
// PEAK: peak {{ *}}32 bytes

// TWICE: error: {{.*}}.txt' was written before, by another pass or for another module; give each a file of its own

module {
  gpu.module @kernels {
    func.func @k(%x: tensor<4xf32>) -> tensor<*x!koila.any> {
      %0 = koila.relu %x : (tensor<4xf32>) -> tensor<*x!koila.any>
      return %0 : tensor<*x!koila.any>
    }
  }
  module @first {
    func.func @f(%x: tensor<4xf32>) -> tensor<*x!koila.any> {
      %0 = koila.relu %x : (tensor<4xf32>) -> tensor<*x!koila.any>
      return %0 : tensor<*x!koila.any>
    }
  }
  module @second {
    func.func @f(%x: tensor<8xf32>) -> tensor<*x!koila.any> {
      %0 = koila.relu %x : (tensor<8xf32>) -> tensor<*x!koila.any>
      return %0 : tensor<*x!koila.any>
    }
  }
}
