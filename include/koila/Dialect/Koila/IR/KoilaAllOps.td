//===- KoilaAllOps.td - Every operation, for documentation -*- tablegen -*-===//

include "koila/Dialect/Koila/IR/KoilaOps.td"
include "koila/Dialect/Koila/IR/KoilaConvolutionOps.td"
include "koila/Dialect/Koila/IR/KoilaMatmulOps.td"
include "koila/Dialect/Koila/IR/KoilaNormOps.td"
include "koila/Dialect/Koila/IR/KoilaPointwiseOps.td"
include "koila/Dialect/Koila/IR/KoilaPoolOps.td"
include "koila/Dialect/Koila/IR/KoilaReductionOps.td"
include "koila/Dialect/Koila/IR/KoilaViewOps.td"
