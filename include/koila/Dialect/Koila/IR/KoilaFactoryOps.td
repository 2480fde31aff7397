//===- KoilaFactoryOps.td - Tensors from sizes; random tensors -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAFACTORYOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAFACTORYOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILAFACTORYOPS_TD
