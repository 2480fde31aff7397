// RUN: koila-opt %s -split-input-file --koila-verify-stage=stage=imported -verify-diagnostics

// A key of the archive is one tensor, and functions of modules in the module
// are looked at, too.

// expected-note @below {{which is here}}
koila.param @first : tensor<4xf32> keys ["w"] strides [1]
// expected-error @below {{has the key 'w' of 'first'}}
koila.param @second : tensor<8xf32> keys ["w"] strides [1]

// -----

module @inner {
  // expected-error @below {{argument 0 has no 'koila.name'; import gives names}}
  func.func @f(%x: tensor<4xf32>) { return }
}
