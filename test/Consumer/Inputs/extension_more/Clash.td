include "koila/Extension/ExtensionOp.td"

def Clash_Dialect : Dialect {
  let name = "clash";
  let cppNamespace = "::clash";
}

// koila's own.
def Clash_ReluOp : Koila_ExtensionOp<Clash_Dialect, "relu",
    "aten::relu(Tensor self) -> Tensor"> {
  let arguments = (ins AnyTensor:$self);
}
