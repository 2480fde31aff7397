//===- KoilaBinaryOps.td - Operators on two or more tensors that broadcast -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILABINARYOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILABINARYOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILABINARYOPS_TD
