//===- KoilaResampleOps.td - Up- and downsampling, sampling at a grid -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILARESAMPLEOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILARESAMPLEOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILARESAMPLEOPS_TD
