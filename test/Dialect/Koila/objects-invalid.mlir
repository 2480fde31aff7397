// RUN: koila-opt %s -split-input-file -verify-diagnostics

// What operations on attributes and methods refuse.

func.func @path() {
  // expected-error @below {{'koila.attr.get' op 'encoder..mode' is no path of names}}
  %0 = koila.attr.get "encoder..mode" -> i64
  return
}

// -----

func.func @name(%object: !koila.torch<"__torch__.State">) {
  // expected-error @below {{'koila.attr.get' op 'inner.mean' is no name of one attribute of an object}}
  %0 = koila.attr.get "inner.mean" of %object : !koila.torch<"__torch__.State"> -> i64
  return
}

// -----

func.func @no_name(%object: !koila.torch<"__torch__.State">) {
  // expected-error @below {{'koila.attr.get' op '' is no path of names}}
  %0 = koila.attr.get "" of %object : !koila.torch<"__torch__.State"> -> i64
  return
}

// -----

func.func @no_object(%x: tensor<4xf32>) {
  // expected-error @below {{operand #0 must be any other TorchScript type, spelled canonically, but got 'tensor<4xf32>'}}
  %0 = "koila.attr.get"(%x) {path = "mean"} : (tensor<4xf32>) -> i64
  return
}

// -----

// The module itself is no attribute.
func.func @module(%x: i64) {
  // expected-error @below {{'koila.attr.set' op '' is no path of names}}
  koila.attr.set "" = %x : i64
  return
}

// -----

func.func @set_name(%object: !koila.torch<"__torch__.State">, %x: i64) {
  // expected-error @below {{'koila.attr.set' op 'inner.mean' is no name of one attribute of an object}}
  koila.attr.set "inner.mean" of %object : !koila.torch<"__torch__.State"> = %x : i64
  return
}

// -----

func.func @no_method(%object: !koila.torch<"__torch__.State">) {
  // expected-error @below {{'koila.call_method' op '' is no name of a method}}
  %0 = koila.call_method "" of %object() : (!koila.torch<"__torch__.State">) -> i64
  return
}

// -----

func.func @method_path(%object: !koila.torch<"__torch__.State">) {
  // expected-error @below {{'koila.call_method' op 'inner.reset' is no name of a method}}
  %0 = koila.call_method "inner.reset" of %object() : (!koila.torch<"__torch__.State">) -> i64
  return
}

// -----

func.func @of_tensor(%x: tensor<4xf32>) {
  // expected-error @below {{operand #0 must be any other TorchScript type, spelled canonically, but got 'tensor<4xf32>'}}
  %0 = koila.call_method "reset" of %x() : (tensor<4xf32>) -> i64
  return
}
