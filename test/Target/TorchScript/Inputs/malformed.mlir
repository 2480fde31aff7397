func.func @forward(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %0 = koila.relu %y : (tensor<?x64xf32>) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}
