include "koila/Extension/ExtensionOp.td"

def Nameless_Dialect : Dialect {
  let name = "nameless";
  let cppNamespace = "::nameless";
}

def Nameless_OneOp : Koila_ExtensionOp<Nameless_Dialect, "one", "one"> {
  let arguments = (ins AnyTensor:$x);
}
