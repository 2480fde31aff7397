func.func @forward(%x: tensor<4x16xi64>) -> tensor<*x!koila.any> {
  %0 = mylib.scaled_gelu %x {scale = 2.0 : f64}
      : (tensor<4x16xi64>) -> tensor<*x!koila.any>
  return %0 : tensor<*x!koila.any>
}
