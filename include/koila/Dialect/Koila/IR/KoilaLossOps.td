//===- KoilaLossOps.td - Losses and distances -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILALOSSOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILALOSSOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILALOSSOPS_TD
