func.func @forward(%x: tensor<?x16xf32> {koila.dims = #koila.dims<[B, 16]>})
    -> tensor<*x!koila.any> {
  %0 = mylib.scaled_gelu %x {scale = 2.0 : f64}
      : (tensor<?x16xf32>) -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}
